"""What earlier runs measured: of the commits before, newest first, bounded, and never a reason to fail."""

from dataclasses import replace

import pytest
from tests.line import repositories
from tests.line.records import record

from gangline.errors import StorageError
from gangline.git.repository import Repository
from gangline.line.record.store import RecordStore
from gangline.line.stages import measured_history
from gangline.line.stages.measured_history import measured, read_measured_history
from gangline.spec.forecast import Forecast, Term
from gangline.spec.measurements import Drill, Ledger
from gangline.spec.mesh import Mesh
from gangline.spec.program_files import RuntimeReport
from gangline.spec.record import GangInfo, PlanInfo, StageInfo
from gangline.storage.folder.store import FolderStore


class Counting(FolderStore):
    """Counts what is read, and breaks off where it is told to."""

    reads = lists = 0
    away = False

    def get(self, *arguments, **more):
        type(self).reads += 1
        if self.away:
            raise StorageError("no route to the store")
        return super().get(*arguments, **more)

    def list(self, *arguments, **more):
        type(self).lists += 1
        return super().list(*arguments, **more)


def trained(sha, number, *, seconds=0.1, created="2026-01-01", **more):
    plan = PlanInfo(
        digest="d", key="k", name="ddp-2", strategy="ddp", mesh=Mesh(dp_replicate=2), world_size=2, steps=10,
        global_batch=16, micro_batch=8, precision="fp32", device="cpu", device_name="", reason="",
        forecast=Forecast(step_seconds=0.2, device_name="a processor"),
        measured=Forecast(step_seconds=seconds, terms=(Term(part="compute", seconds=0.05, origin="measured"),)),
    )  # fmt: skip
    base = record(f"cheap-{sha[:8]}-{number:06d}", created=created)
    return replace(base, commit=replace(base.commit, sha=sha, **more), plan=plan)


def kept(tmp_path, *records):
    store = Counting(tmp_path / "store")
    for each in records:
        RecordStore.of(store, each).create(each)
    type(store).reads = type(store).lists = 0
    return store


def commits(tmp_path, count):
    repo = repositories.make_repository(tmp_path / "repo")
    shas = [repositories.commit(repo, {"n": str(number)}) for number in range(count)]
    return Repository.at(repo), shas


def test_runs_of_this_commit_and_those_before_it_come_newest_first(tmp_path):
    repository, shas = commits(tmp_path, 3)
    store = kept(
        tmp_path,
        trained(shas[0], 1, seconds=0.1, created="2026-01-01"),
        trained(shas[1], 2, seconds=0.2, created="2026-01-03"),
        trained(shas[2], 3, seconds=0.3, created="2026-01-02"),
        trained(shas[2], 4, seconds=0.4, created="2026-01-04"),
    )
    found = read_measured_history(store, repository, project="cheap", commit=shas[2], run=f"cheap-{shas[2][:8]}-000004")
    assert [each.step_seconds for each in found.runs] == [0.2, 0.3, 0.1]
    assert found.problem == ""
    earlier = read_measured_history(store, repository, project="cheap", commit=shas[0], run="none")
    assert [each.step_seconds for each in earlier.runs] == [0.1]


def test_what_a_run_forecast_and_measured_by_part_is_part_of_it():
    (run,) = measured([trained("a" * 40, 1)])
    assert run.parts == {"compute": 0.05}
    assert (run.forecast.step_seconds, run.forecast.device_name) == (0.2, "a processor")
    assert measured([record()]) == ()


def test_time_in_a_queue_is_not_time_of_the_gang():
    waited = trained("a" * 40, 1)
    waited = replace(waited, stages={"train": StageInfo(state="done", seconds=7200.0)})
    ran = replace(waited.plan, measured=replace(waited.plan.measured, wall_seconds=600.0))
    assert [each.train_seconds for each in measured([waited, replace(waited, plan=ran)])] == [7200.0, 600.0]


def test_time_outside_the_steps_is_known_of_a_run_without_a_restart():
    made = trained("a" * 40, 1, seconds=0.2)
    took = Forecast(
        step_seconds=0.2, wall_seconds=90.0, terms=(Term(part="checkpoint", seconds=0.05, origin="measured"),)
    )
    made = replace(made, plan=replace(made.plan, measured=took))
    ended = replace(made, stages={"train": StageInfo(state="done", outputs={"final_step": 12})})
    gang = GangInfo(launcher="local", name="g", uid="u", podset="p", restarts=1)
    (first, second, third) = measured([made, ended, replace(ended, gang=gang)])
    assert (first.outside_seconds, third.outside_seconds) == (None, None)
    assert second.outside_seconds == pytest.approx(90.0 - 12 * 0.25)


def test_runs_of_forks_and_drilled_ones_teach_nothing(tmp_path):
    repository, shas = commits(tmp_path, 1)
    faulty = replace(trained(shas[0], 2), drills=(Drill(name="kill-rank", row="T1", result="held"),))
    store = kept(tmp_path, trained(shas[0], 1, trust="fork"), faulty, trained(shas[0], 3))
    (own,) = read_measured_history(store, repository, project="cheap", commit=shas[0], run="none").runs
    assert own.run.endswith("000003")


def test_reads_are_bounded_however_much_was_run(tmp_path, monkeypatch):
    monkeypatch.setattr(measured_history, "MAX_RECORDS", 5)
    monkeypatch.setattr(measured_history, "MAX_COMMITS", 3)
    repository, shas = commits(tmp_path, 6)
    store = kept(tmp_path, *(trained(sha, number) for sha in shas for number in range(4)))
    found = read_measured_history(store, repository, project="cheap", commit=shas[-1], run="none")
    assert len(found.runs) == 5
    assert Counting.reads <= 6
    assert Counting.lists <= 8
    thin = kept(tmp_path / "thin", *(trained(sha, 1) for sha in shas))
    found = read_measured_history(thin, repository, project="cheap", commit=shas[-1], run="none")
    assert len(found.runs) == 4  # of this commit and the three before it


def test_a_store_that_is_away_is_said_and_nothing_more(tmp_path):
    repository, shas = commits(tmp_path, 1)
    store = kept(tmp_path, trained(shas[0], 1))
    store.away = True
    found = read_measured_history(store, repository, project="cheap", commit=shas[0], run="none")
    assert found.runs == ()
    assert found.problem == "earlier runs were not read: no route to the store"


def test_a_restart_cost_what_the_ledger_booked_for_one():
    """2 ranks, 2 restarts: half of what was stalled, a third of what every generation begins with, of one rank."""
    once = trained("a" * 40, 1)
    seconds = {"compute": 500.0, "stalled": 40.0, "restart": 20.0, "start": 6.0, "build": 24.0, "redone": 99.0}
    ledger = Ledger(resource="cpu", allocated_seconds=1000.0, seconds=seconds)
    restarted = replace(once, ledger=ledger, gang=GangInfo(launcher="local", name="g", uid="u", podset="p", restarts=2))
    (run,) = measured([restarted])
    assert (run.failures, run.restart_seconds) == (2, (60.0 / 2 + 30.0 / 3) / 2)
    assert measured([once])[0].restart_seconds is None


def test_a_record_that_is_none_is_named_and_the_others_count(tmp_path):
    repository, shas = commits(tmp_path, 2)
    store = kept(tmp_path, trained(shas[1], 1), trained(shas[1], 2))
    min((tmp_path / "store").rglob("record.json")).write_bytes(b"no record")
    found = read_measured_history(store, repository, project="cheap", commit=shas[1], run="")
    assert len(found.runs) == 1
    assert found.problem.startswith("earlier runs, 1 refused: runs/cheap/")


def test_a_run_on_other_gpus_than_planned_measured_those():
    base = trained("a" * 40, 1)
    plan = replace(base.plan, device="cuda", device_name="NVIDIA-H100-80GB-HBM3")
    names = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
    ran = [replace(base, plan=plan, ran=RuntimeReport(gpus=gpus)) for gpus in (names[:1], names[1:], names)]
    assert [each.device_name for each in measured(ran)] == [names[0], plan.device_name, " and ".join(names)]
