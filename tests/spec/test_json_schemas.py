"""Published schemas: fresh, valid, and of one mind with the code about real and wrong documents."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from tools.json_schemas import DOCUMENTS, schema_of, write_schemas

from gangline.spec.codec import to_plain
from gangline.spec.config.fabric import FabricFile, FabricTable, GroupTable
from gangline.spec.config.line import Line
from gangline.spec.config.load import load_line
from gangline.spec.config.site import Site
from gangline.spec.devices import Devices, Inventory
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd, GangResult, JobResult, KeeperStatus
from gangline.spec.measurements import Metric
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, CheckpointPolicy, Job, Plan, ProgramSpec
from gangline.spec.record import CommitInfo, Gate, Inputs, Record, RunInfo, StageInfo

ROOT = Path(__file__).parents[2]
PLAN = Plan(
    run="demo-1",
    project="demo",
    name="ddp-2",
    run_prefix="runs/demo/x/demo-1",
    program=ProgramSpec(task="model:Demo"),
    strategy="ddp",
    mesh=Mesh(dp_replicate=2),
    steps=10,
    global_batch=16,
    micro_batch=8,
    checkpoint=CheckpointPolicy(every=5),
    jobs=(Job(seed=1),),
    candidates=(Candidate(name="ddp-2", strategy="ddp", mesh=Mesh(dp_replicate=2), verdict="chosen", reason="fits"),),
)
RECORD = Record(
    run=RunInfo(id="demo-1", project="demo", created="2026-01-01T00:00:00Z"),
    commit=CommitInfo(sha="a" * 40, tree="b" * 40),
    inputs=Inputs(line="c", values={"train.steps": 3}),
    stages={"resolve": StageInfo(state="done")},
    metrics={"eval_loss": Metric(value=2.5, seeds={"1": 2.5})},
    gates=(Gate(name="budget", verdict="yes", reason="no bound is set"),),
)
REAL = {
    "line": load_line(ROOT / "examples" / "bytegpt"),
    "site": Site(),
    "fabric": FabricFile(fabric=FabricTable(groups=(GroupTable(name="g01", servers="a[001-064]"),))),
    "inventory": Inventory(cores=2, devices=(Devices(kind="cuda", memory_bytes=1),)),
    "plan": PLAN,
    "podset": PodSet(name="a", run="a", project="a", commit="a", procs_per_node=2, code="c", plan="p", store="file:s"),
    "keeper_status": KeeperStatus(node_rank=0, pid=1, start_time=2, state="running", ranks={"0": 3}),
    "gang_end": GangEnd(exit_code=0, retry="never", reason="done"),
    "gang_result": GangResult(jobs=(JobResult(seed=1, step=3, losses=((1, 2.5),)),)),
    "record": RECORD,
}


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(DOCUMENTS[name]))


def test_committed_schemas_are_fresh(tmp_path):
    fresh = {path.name: path.read_text() for path in write_schemas(tmp_path)}
    schemas = (ROOT / "docs" / "schemas").glob("*.json")
    committed = {path.name: path.read_text() for path in schemas if path.stem != "openapi"}
    assert committed == fresh, "make schemas rewrites them"


@pytest.mark.parametrize("name", REAL)
def test_schema_is_valid_and_accepts_a_real_document(name):
    schema = schema_of(DOCUMENTS[name])
    Draft202012Validator.check_schema(schema)
    validator(name).validate(json.loads(json.dumps(to_plain(REAL[name]))))


@pytest.mark.parametrize("name", REAL)
def test_schema_refuses_an_unknown_key_and_a_missing_one(name):
    plain = to_plain(REAL[name])
    with pytest.raises(ValidationError, match="Additional properties"):
        validator(name).validate(plain | {"unheard_of": 1})
    for key in schema_of(DOCUMENTS[name]).get("required", []):
        with pytest.raises(ValidationError, match="required property"):
            validator(name).validate({each: value for each, value in plain.items() if each != key})


def test_line_as_people_write_it_fits_its_schema():
    text = (ROOT / "examples" / "bytegpt" / "line.toml").read_text()
    validator("line").validate(tomllib.loads(text))


def test_document_of_a_newer_version_does_not_fit():
    with pytest.raises(ValidationError, match="1 was expected"):
        validator("plan").validate(to_plain(replace(PLAN, schema=2)))


def test_every_key_of_a_file_that_people_write_has_a_description():
    for cls in (Line, Site, FabricFile):
        tables = schema_of(cls)["$defs"].items()
        silent = [
            f"{name}.{key}"
            for name, table in tables
            for key, value in table["properties"].items()
            if "description" not in value
            and "$ref" not in value
            and "$ref" not in value.get("additionalProperties", {})
        ]
        assert silent == []
