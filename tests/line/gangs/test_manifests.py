"""What a cluster would be given, without asking one: the facts come from a file."""

from dataclasses import replace

import pytest
import yaml
from tests.line.gangs.test_podsets import IMAGE, FarStore, line_of, plan_of, planned

from gangline.errors import UsageError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.line.gangs import manifests
from gangline.line.gangs.manifests import emit_gang, training_podset
from gangline.spec.codec import canonical
from gangline.spec.config.site import LaunchTable, Site, StoreTable
from gangline.spec.record import PlanInfo, StageInfo
from gangline.storage.objects.blobs import put_blob

SITE = Site(
    store=StoreTable(url="s3://bucket/p", endpoint="http://minio.store:9000", credentials="secret:env:KEY"),
    launch=LaunchTable(target="kubernetes", namespace="gangs"),
)


@pytest.fixture
def record(tmp_path, monkeypatch):
    store, plan = FarStore(tmp_path / "store"), plan_of(4)
    monkeypatch.setattr(manifests.site_paths, "open_site_store", lambda *_: store)
    base = planned(procs=2)
    stages = base.stages | {
        "resolve": StageInfo(state="done", outputs={"line": put_blob(store, canonical(line_of(4)))}),
    }
    info = PlanInfo(
        digest=plan.digest, key=put_blob(store, plan.to_json()), name=plan.name, strategy="ddp", mesh=plan.mesh,
        world_size=4, steps=4, global_batch=8, micro_batch=1, precision="fp32", device="cpu", reason="",
    )  # fmt: skip
    return replace(base, stages=stages, plan=info)


@pytest.fixture
def facts(tmp_path):
    path = tmp_path / "facts.json"
    path.write_bytes(ClusterFacts(version="1.34", served=("batch/v1/jobs",)).to_json())
    return path


def emitted(tmp_path, record, kind, facts):
    return emit_gang(tmp_path, record, kind, site=SITE, environ={}, facts_file=facts)


def test_a_job_is_the_one_that_submit_would_create(tmp_path, record, facts):
    text = emitted(tmp_path, record, "job", facts)
    objects = {each["kind"]: each for each in yaml.safe_load_all(text)}
    assert objects.keys() == {"Job", "Service", "NetworkPolicy"}
    podset = training_podset(tmp_path, record, site=SITE, environ={})
    assert objects["Job"]["metadata"]["annotations"]["gangline/podset"] == podset.digest
    assert objects["Job"]["spec"]["parallelism"] == 2
    assert objects["Job"]["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


def test_secrets_are_named_and_not_shown(tmp_path, record, facts):
    text = emitted(tmp_path, record, "trainjob", facts)
    assert "# Must exist first: Secret" in text
    assert "kind: Secret" not in text


def test_a_runtime_for_an_administrator(tmp_path, record, facts):
    (runtime,) = yaml.safe_load_all(emitted(tmp_path, record, "runtime", facts))
    assert (runtime["kind"], runtime["metadata"]["name"]) == ("ClusterTrainingRuntime", "gangline")


def test_a_run_without_a_plan_is_shown_how_to_get_one(tmp_path, record):
    with pytest.raises(UsageError, match="--until plan"):
        training_podset(tmp_path, replace(record, plan=None), site=SITE, environ={})


def test_a_run_of_this_machine_has_no_objects(tmp_path, record):
    here = replace(record, run=replace(record.run, target="local"))
    with pytest.raises(UsageError, match="runs its ranks at local, in no pods"):
        training_podset(tmp_path, here, site=SITE, environ={})


def test_facts_that_are_not_there_are_named_with_who_writes_them(tmp_path, record):
    with pytest.raises(UsageError, match="doctor --cluster"):
        emitted(tmp_path, record, "job", tmp_path / "none.json")
