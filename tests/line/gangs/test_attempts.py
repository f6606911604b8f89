"""What follows a gang's end: another attempt, or the end of the stage. The program reads its attempt from its name."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.line import repositories

from gangline.errors import (
    CancelledError,
    CapacityError,
    GateError,
    IntegrityError,
    NonFiniteError,
    OutOfMemoryError,
    TrainingError,
)
from gangline.launch.local import LocalLauncher
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.line.gangs.attempts import read_result
from gangline.line.run.sweep import sweep
from gangline.spec.gang.podset import PlacedServer
from gangline.spec.record import Waiting
from gangline.spec.run_flags import stage
from gangline.storage.folder.store import FolderStore

ENDS = """\
import json, os, pathlib, re, sys
later = re.search(r"-[a-z2-7]{6}-t(\\d+)$", os.environ["GANGLINE_GANG"])
attempt = int(later[1]) if later else 1
codes = {codes}
if attempt <= len(codes):
    said = {"event": "done", "exit": codes[attempt - 1], "reason": "as the runtime of a rank says it"}
    if {states}:
        pathlib.Path(os.environ["GANGLINE_OUT"], "ranks", "0.jsonl").write_text(json.dumps(said) + "\\n")
    sys.exit(codes[attempt - 1])
"""


def ending_with(*codes, states=True):
    """A program whose gangs end with these codes; `states`: it writes them, as the runtime of a rank does."""
    return ENDS.replace("{codes}", repr(list(codes))).replace("{states}", repr(states)) + repositories.PROGRAM


def gangs_of(workspace):
    return sorted(
        each.name for each in (workspace.repo / ".gangline" / "gangs").iterdir() if not each.name.startswith(".")
    )


def test_out_of_memory_is_tried_once_more_with_half_the_micro_batch(workspace):
    repositories.commit(workspace.repo, {"answer.py": ending_with(32)})
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert record.plan.micro_batch == 2
    assert gangs_of(workspace) == [record.run.id, f"{record.run.id}-t2"]
    assert record.gang.name == f"{record.run.id}-t2"
    assert any("retrying with 1" in event.text for event in record.events)
    assert "1 restart" in stage(record, "train").message


def test_out_of_memory_twice_ends_the_run(workspace):
    repositories.commit(workspace.repo, {"answer.py": ending_with(32, 32)})
    with pytest.raises(OutOfMemoryError):
        workspace.run()
    assert len(gangs_of(workspace)) == 2


def test_a_fixed_micro_batch_is_not_halved(workspace):
    line = repositories.LINE + "[train.mesh]\nmicro_batch = 2\n"
    repositories.commit(workspace.repo, {"answer.py": ending_with(32), "line.toml": line})
    with pytest.raises(OutOfMemoryError):
        workspace.run()
    assert len(gangs_of(workspace)) == 1


@pytest.mark.parametrize("code", [30, 31, 42, 50])
def test_a_program_that_declines_is_not_started_again(workspace, code):
    repositories.commit(workspace.repo, {"answer.py": ending_with(code)})
    with pytest.raises(Exception, match=r".") as caught:
        workspace.run()
    assert caught.value.exit_code == (30 if code == 42 else code)
    assert len(gangs_of(workspace)) == 1


OWN = [1, 2, 3, 10, 20, 31, 32, 33, 34, 40, 50, 60, 70, 75]


@pytest.mark.parametrize("code", OWN)
def test_code_that_no_runtime_wrote_ends_the_run_as_the_programs_own(workspace, code):
    repositories.commit(workspace.repo, {"answer.py": ending_with(code, states=False)})
    with pytest.raises(TrainingError, match=f"rank 0 ended with code {code}\\b") as caught:
        workspace.run()
    assert type(caught.value) is TrainingError
    (record,) = workspace.records()
    assert (record.run.verdict, record.run.exit_code, record.gang.restarts) == ("failed", 30, 0)
    assert f"code {code}" in stage(record, "train").message
    assert len(gangs_of(workspace)) == 1


def ends(monkeypatch, *found):
    """Let gangs end so, one after the other, whatever their keepers say; later ones end as they do."""
    collected, kept = LocalLauncher.collect, {}

    def collect(launcher, name):
        end = collected(launcher, name)
        return kept.setdefault(name, replace(end, **found[len(kept)]) if len(kept) < len(found) else end)

    monkeypatch.setattr(LocalLauncher, "collect", collect)


def test_no_room_leaves_the_run_open_until_there_is_some(workspace, monkeypatch):
    no_room = {"exit_code": 20, "retry": "later", "reason": "no room"}
    ends(monkeypatch, no_room, no_room)
    for tries in (1, 2):
        with pytest.raises(CapacityError):
            workspace.run()
        (record,) = workspace.records()
        assert record.run.state == "open"
        assert (stage(record, "train").state, stage(record, "train").tries) == ("running", tries)
    assert workspace.run().run.verdict == "passed"
    assert len(gangs_of(workspace)) == 3


@pytest.mark.parametrize(("code", "retry"), [(143, "free"), (70, "never")])
def test_gangs_that_are_stopped_without_a_further_step_come_to_an_end(workspace, monkeypatch, code, retry):
    stopped = {"exit_code": code, "retry": retry, "reason": "stopped", "restarts": 1}
    ends(monkeypatch, *({**stopped, "step": step} for step in (None, 5, 9, 9, 9)))
    with pytest.raises((TrainingError, CancelledError)):
        workspace.run()
    (record,) = workspace.records()
    assert len(gangs_of(workspace)) == 5, "two of them had made steps"
    assert record.gang.restarts == 5 + 4, "each restart is counted: of ranks, and of gangs"


def test_each_restart_is_in_the_record_while_the_gang_runs(workspace, monkeypatch):
    events, seen = LocalLauncher.follow, []

    def follow(launcher, name):
        for restarts in (0, 1, 2):
            status = GangStatus(state="running", restarts=restarts)
            yield GangEvent(kind="state", text="running", status=status)
            seen.append(workspace.records()[0].gang.restarts)
        yield from events(launcher, name)

    monkeypatch.setattr(LocalLauncher, "follow", follow)
    ends(monkeypatch, {"exit_code": 137, "retry": "same", "reason": "lost", "restarts": 2}, {"restarts": 2})
    assert workspace.run().gang.restarts == 5
    assert seen == [0, 1, 2, 3, 4, 5]


def test_servers_of_a_gang_too_short_to_be_seen_running_are_known_all_the_same(workspace, monkeypatch):
    events = LocalLauncher.follow

    def late(launcher, name):
        for event in events(launcher, name):
            state = event.status.state if event.kind == "state" else ""
            if state in ("stopping", "ended"):
                yield replace(event, status=replace(event.status, servers=("server-7",)))
            elif state != "running":
                yield event

    monkeypatch.setattr(LocalLauncher, "follow", late)
    record = workspace.run()
    assert record.gang.servers == ("server-7",)
    assert record.gang.released is not None


def test_a_gang_is_admitted_when_it_has_servers_and_not_when_it_is_submitted(workspace, monkeypatch):
    events, seen = LocalLauncher.follow, []

    def queued(launcher, name):
        waiting = GangStatus(state="waiting")
        for status in (waiting, replace(waiting, state="starting"), replace(waiting, state="starting", servers=("a",))):
            yield GangEvent(kind="state", text=status.state, status=status)
            seen.append(workspace.records()[0].gang.admitted)
        yield from events(launcher, name)

    monkeypatch.setattr(LocalLauncher, "follow", queued)
    record = workspace.run()
    assert seen[:2] == [None, None]
    assert seen[2] is not None
    assert record.gang.admitted == seen[2]


def test_nodes_on_other_servers_than_they_were_given_are_named_in_the_record(workspace, monkeypatch):
    events = LocalLauncher.follow
    placed = tuple(PlacedServer(name=name, group=group) for name, group in (("a", "g1"), ("b", "g1"), ("c", "g2")))

    def elsewhere(launcher, name):
        for servers, known in ((("a", "b", "c"), ()), (("a", "b", "c"), placed), (("a", "c", "b"), placed)):
            status = GangStatus(state="running", servers=servers, placed=known, placed_by="Kueue")
            yield GangEvent(kind="state", text="running", status=status)
            seen.append(workspace.records()[0].gang.order)
        yield from events(launcher, name)

    seen = []
    monkeypatch.setattr(LocalLauncher, "follow", elsewhere)
    record = workspace.run()
    assert seen[0] is None
    assert (seen[1].num_moved, seen[1].num_groups, seen[1].crossings) == (0, 2, 2)
    assert [(each.node_rank, each.placed, each.found) for each in seen[2].moved] == [(1, "b", "c"), (2, "c", "b")]
    tables = [each.sha256 for each in record.artifacts if each.kind == "ranks"]
    assert len(set(tables)) == 2  # of the order that was placed, and of the one that was found
    said = "2 of 3 nodes run on other servers than Kueue gave them, as node 1 on c instead of b"
    assert said in [event.text for event in record.events if event.kind == "placement"]


def test_record_of_a_gang_that_waits_says_what_would_start_now(workspace, monkeypatch):
    events, seen = LocalLauncher.follow, []

    def waits(launcher, name):
        yield GangEvent(kind="waiting", text="no room", data={"until": "", "would_start_now": "3 pods"})
        seen.append(workspace.records()[0].gang.waiting)
        yield from events(launcher, name)

    monkeypatch.setattr(LocalLauncher, "follow", waits)
    workspace.run()
    assert seen == [Waiting(who="no room", would_start_now="3 pods")]


def test_the_ledger_counts_every_attempt(workspace):
    repositories.commit(workspace.repo, {"answer.py": ending_with(32)})
    record = workspace.run()
    assert record.ledger.allocated_seconds == pytest.approx(sum(record.ledger.seconds.values()))
    ends = [gang_end(workspace, name) for name in gangs_of(workspace)]
    assert record.ledger.allocated_seconds == pytest.approx(sum(end.allocated_seconds for end in ends), rel=1e-6)


def gang_end(workspace, name):
    from gangline.line.gangs.launchers import open_launcher

    return open_launcher(workspace.repo, **workspace.where, store=workspace.store).collect(name)


def test_a_broken_program_fails_with_its_words(workspace):
    repositories.commit(workspace.repo, {"answer.py": "raise RuntimeError('the cat sat on the keyboard')\n"})
    with pytest.raises(TrainingError):
        workspace.run()
    (record,) = workspace.records()
    assert record.run.exit_code == 30
    assert "rank 0" in record.run.reason


def test_of_a_training_that_failed_the_course_and_the_time_are_kept(workspace):
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + ending_with(31)})
    with pytest.raises(NonFiniteError):
        workspace.run()
    (record,) = workspace.records()
    assert record.run.verdict == "failed"
    assert [point.value for point in record.curve.points] == [2.5, 2.0, 1.5, 1.0]
    assert record.ledger.allocated_seconds > 0


def test_what_a_program_reports_of_itself_is_judged(workspace):
    reports = repositories.PROGRAM.replace(
        '"final_step": 4}', '"final_step": 4, "jobs": [{"seed": 1, "step": 4, "metrics": {"score": 0.5}}]}'
    )
    gate = '[[gate.quality]]\nmetric = "score"\nbetter = "higher"\nlimit = 0.4\n'
    repositories.commit(workspace.repo, {"answer.py": reports, "line.toml": repositories.LINE + gate})
    record = workspace.run()
    assert record.metrics["score"].value == 0.5
    assert {each.name: each.verdict for each in record.gates}["quality:score"] == "yes"
    other = workspace.run(overrides=['evaluate.metrics=["score"]'])
    assert stage(other, "evaluate").state == "done"
    assert other.metrics["score"].value == 0.5


def test_a_gate_on_a_metric_that_no_program_reports_refuses_by_name(workspace):
    reports = repositories.PROGRAM.replace(
        '"final_step": 4}', '"final_step": 4, "jobs": [{"seed": 1, "step": 4, "metrics": {"score": 0.5}}]}'
    )
    line = repositories.LINE + '[[gate.quality]]\nmetric = "scroe"\nbetter = "higher"\n'
    repositories.commit(workspace.repo, {"answer.py": reports, "line.toml": line})
    with pytest.raises(GateError, match=r"scroe was not reported; reported: .*did you mean score"):
        workspace.run()


LEAVES_HALF_A_SAVE = """
half = out / "checkpoints" / "step-00000002"
half.mkdir(parents=True, exist_ok=True)
(half / "g0000-r00000-0.safetensors").write_text("cut off")
(half / "mine.pt").write_text("no manifest, no gangline")
"""


def test_what_a_crashed_save_left_goes_with_the_run_and_what_the_program_wrote_stays(workspace):
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + LEAVES_HALF_A_SAVE})
    record = workspace.run()
    below = f"{record.gang_prefix}/checkpoints/"
    mine, half = f"{below}step-00000002/mine.pt", f"{below}step-00000002/g0000-r00000-0.safetensors"
    assert [entry.key for entry in workspace.store.list(below)] == [mine]
    workspace.store.put(half, b"as if the gang had lived longer than its driver")
    assert [each.life for each in sweep(workspace.repo, **workspace.where)] == ["ended"]
    assert [entry.key for entry in workspace.store.list(below)] == [mine]


def test_worker_for_which_another_one_has_saved_needs_no_result(tmp_path):
    ctx = SimpleNamespace(store=FolderStore(tmp_path))
    plan = SimpleNamespace(run="r", output_prefix="runs/p/c/r", program=SimpleNamespace(task="model:Tiny"), worker=2)
    assert read_result(ctx, plan) is None
    plan.worker = 0
    with pytest.raises(IntegrityError, match="from a gang that ended well, found nothing"):
        read_result(ctx, plan)
