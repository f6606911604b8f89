"""A record that somebody rewrote between two stages: no driver goes on with it, whatever it says."""

from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.errors import IntegrityError
from gangline.line.record.store import RecordStore
from gangline.line.request.run_request import CommitOrigin
from gangline.line.request.trust import approve
from gangline.line.results.verification import verify
from gangline.signing.record_seal import FORM
from gangline.spec.record import Gate, Record, Seal
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import list_all

pytestmark = [pytest.mark.row("P5"), pytest.mark.row("I2")]
FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")
LATER = ("evaluate", "gate", "prove", "publish", "report")


def commit(record, **fields):
    return replace(record, commit=replace(record.commit, **fields))


def outputs(record, **fields):
    train = stage(record, "train")
    return replace(record, stages=record.stages | {"train": replace(train, outputs=train.outputs | fields)})


REWRITTEN = {
    "trust": lambda r: commit(r, trust="own", branch="main", protected=True),
    "branch": lambda r: commit(r, branch="main"),
    "protected": lambda r: commit(r, protected=True),
    "base": lambda r: commit(r, base=None, subject="fine"),
    "approval": lambda r: replace(r, run=replace(r.run, approved="the maintainer, 2026-01-01")),
    "gates": lambda r: replace(r, gates=(Gate(name="quality:loss", verdict="yes", reason="fine"),)),
    "checkpoint": lambda r: outputs(r, checkpoint="runs/other/a/b/gang/checkpoints/step-00000004"),
    "metrics": lambda r: outputs(r, metrics={"loss": 0.0}),
    "inputs": lambda r: replace(r, inputs=replace(r.inputs, overrides=("gate.parity=1",))),
    "drills": lambda r: replace(r, drills=()),
    "driver": lambda r: replace(r, run=replace(r.run, driver=replace(r.run.driver, token=1))),
    "verdict": lambda r: replace(r, run=replace(r.run, state="ended", verdict="passed", exit_code=0)),
    "stage": lambda r: replace(r, stages=r.stages | {"prove": replace(stage(r, "train"), message="fine")}),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A workspace whose fork's run was approved and has trained; its record."""
    from tests.line.conftest import Workspace

    from gangline.spec.config.site import Site

    folder = tmp_path_factory.mktemp("trained")
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    workspace = Workspace(repositories.make_repository(folder / "repo"), Site(), environ)
    workspace.run(origin=FORK, until="plan")
    approve(workspace.store, workspace.records()[0], who="maintainer", sealer=workspace.sealer)
    workspace.run(origin=FORK, until="train", overrides=())
    return workspace, workspace.records()[0]


def rewritten(workspace, record, change):
    """Put the record back as it was, changed; True where that changes what it says."""
    changed = change(record)
    workspace.store.put(f"{record.prefix}/record.json", changed.to_json())
    return changed != record


@pytest.mark.parametrize("what", REWRITTEN)
def test_no_driver_continues_with_a_record_that_somebody_rewrote(trained, what):
    workspace, record = trained
    if not rewritten(workspace, record, REWRITTEN[what]):
        record = RecordStore.of(workspace.store, record, workspace.sealer).change(_fill)
        assert rewritten(workspace, record, REWRITTEN[what])
    for name in LATER:
        with pytest.raises(IntegrityError, match="changed after key"):
            workspace.stage(name, record.run.id)
    with pytest.raises(IntegrityError, match="changed after key"):
        workspace.run(origin=FORK)
    assert not list(list_all(workspace.store, "models/"))
    found = verify(record.run.id, store=workspace.store, repo=workspace.repo, **workspace.where)
    assert [each.name for each in found if not each.ok] == ["record"]


def _fill(record: Record) -> Record:
    """With something to take away."""
    from gangline.spec.measurements import Drill

    drill = Drill(name="kill-rank", row="T1", result="held")
    return replace(record, drills=(drill,))


SEALS = {
    "has no seal": None,
    "a seal of form 2": Seal(key_id="0badbeef", signature="AAAA"),
    "sealed by key 0badbeef": Seal(key_id="0badbeef", signature="AAAA", form=FORM),
}


@pytest.mark.parametrize("found", SEALS)
def test_no_driver_continues_without_the_seal_of_a_trusted_key(trained, found):
    workspace, record = trained
    rewritten(workspace, record, lambda each: replace(REWRITTEN["trust"](each), seal=SEALS[found]))
    for name in LATER:
        with pytest.raises(IntegrityError, match=found):
            workspace.stage(name, record.run.id)


def test_a_seal_of_another_run_does_not_fit(trained):
    workspace, record = trained
    other = workspace.run(until="plan")
    rewritten(workspace, record, lambda each: replace(REWRITTEN["trust"](each), seal=other.seal))
    with pytest.raises(IntegrityError, match="changed after key"):
        workspace.stage("evaluate", record.run.id)


def test_a_key_that_is_trusted_does_not_make_a_forks_run_one_of_the_project(trained):
    """The run id says whose commit it is: a driver with the key that was talked into another trust is found out."""
    workspace, record = trained
    rewritten(workspace, record, lambda each: workspace.sealer.seal(REWRITTEN["trust"](each)))
    with pytest.raises(IntegrityError, match="its commit, trust, line and attempt make"):
        workspace.stage("evaluate", record.run.id)


def test_a_whole_number_of_seconds_breaks_no_seal(trained):
    """A record is read back with 0.0 where it was written with 0."""
    workspace, record = trained
    whole = workspace.sealer.seal(
        replace(record, stages=record.stages | {"train": replace(stage(record, "train"), seconds=0)})
    )
    assert workspace.sealer.holds(whole)
    assert workspace.sealer.holds(Record.from_json(whole.to_json()))


def test_the_record_as_its_driver_left_it_goes_to_its_end(trained):
    workspace, record = trained
    rewritten(workspace, record, lambda each: each)
    for name in LATER:
        workspace.stage(name, record.run.id)
    ended = workspace.record(record.run.id)
    assert (ended.run.verdict, stage(ended, "publish").state) == ("passed", "skipped")
