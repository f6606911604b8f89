"""Gangs of workers beside that of the servers: whose end is the end of the run."""

import threading
from dataclasses import fields
from types import SimpleNamespace

import pytest
from tests.line.conftest import Remembers
from tests.train.parameters.parts import run_plan

from gangline.errors import CancelledError, IntegrityError, NonFiniteError, TrainingError
from gangline.launch.protocol import GangEvent
from gangline.line.gangs import many
from gangline.line.gangs.attempts import FinishedGang, GangShare, read_result
from gangline.line.record.context import RunContext
from gangline.line.record.observer import SilentObserver
from gangline.planner.plans import server_plan, worker_plans
from gangline.spec.gang.status import GangEnd, GangResult
from gangline.storage.folder.store import FolderStore

WAIT_SECONDS = 30.0
RESULT = GangResult(role="train", final_step=8, checkpoint="runs/c", jobs=())


class Gangs:
    """Launcher and gangs; `ends` has what becomes of a gang by its name: a function that returns or raises."""

    def __init__(self, ends):
        self.ends, self.cancelled, self.started = ends, {}, []
        self.notes = []

    def cancel(self, name, *, reason, save):
        self.cancelled[name] = reason

    def run_gang(self, ctx, stage, plan, *, chain=0, on_started):
        assert chain == plan.worker
        name = f"worker-{chain}" if chain else "servers"
        self.started.append(name)
        on_started(SimpleNamespace(name=name), 0)
        error = self.ends[name](self)
        end = GangEnd(exit_code=error.exit_code if error else 0, retry="never", reason=str(error or "finished"))
        return FinishedGang(
            name=name, plan=plan, end=end, result=None if error or chain else RESULT, error=error,
            shares=(GangShare(10.0 if chain else 1.0, {}),), attempts=1, restarts=chain,
        )  # fmt: skip

    def until(self, condition):
        done = threading.Event()
        for _ in range(int(WAIT_SECONDS / 0.02)):
            if condition():
                return
            done.wait(0.02)
        raise AssertionError(f"it did not happen: {self.started} {self.cancelled}")


def well(gangs):
    """It ends without an error."""


def after_workers(gangs):
    gangs.until(lambda: len(gangs.started) == 3)


def until_cancelled(name, error=None):
    def end(gangs):
        gangs.until(lambda: name in gangs.cancelled)
        if error is not None:
            raise error
        return TrainingError(gangs.cancelled[name])

    return end


def failing(gangs):
    return NonFiniteError("block 3: the weights are not finite")


@pytest.fixture
def ran(monkeypatch):
    """Function of ends: what the run came to, its gangs and the texts of its events."""

    def run(**ends):
        gangs = Gangs({name.replace("_", "-"): end for name, end in ends.items()})
        monkeypatch.setattr(many, "run_gang", gangs.run_gang)
        values = dict.fromkeys((each.name for each in fields(RunContext)), None)
        ctx = RunContext(**values | {"launcher": gangs, "observer": SilentObserver(), "pending": []})
        finished = many.run_gangs(ctx, "train", run_plan(), on_started=lambda *_: None)
        return finished, gangs, [each.text for each in ctx.pending]

    return run


def test_run_ends_with_its_servers_and_has_the_time_of_all(ran):
    finished, gangs, texts = ran(servers=after_workers, worker_1=well, worker_2=well)
    assert (finished.error, finished.result, texts) == (None, RESULT, [])
    assert sum(each.allocated for each in finished.shares) == 21.0
    assert (finished.restarts, finished.num_ranks) == (3, 3)
    assert gangs.cancelled == {}


@pytest.mark.row("PS2")
def test_worker_that_did_not_end_the_run_has_no_result_and_servers_have_one(tmp_path):
    ctx, plan = SimpleNamespace(store=FolderStore(tmp_path)), run_plan()
    assert [read_result(ctx, each) for each in worker_plans(plan)] == [None, None]
    with pytest.raises(IntegrityError, match="from a gang that ended well, found nothing"):
        read_result(ctx, server_plan(plan))


def test_worker_that_fails_for_good_is_said_and_the_run_goes_on(ran):
    finished, gangs, texts = ran(servers=after_workers, worker_1=failing, worker_2=well)
    assert finished.error is None
    assert texts == ["ended for good: block 3: the weights are not finite; 1 of 2 workers train on"]
    assert gangs.cancelled == {}


def test_run_fails_with_its_last_worker(ran):
    finished, gangs, texts = ran(
        servers=until_cancelled("servers"), worker_1=failing, worker_2=failing
    )  # fmt: skip
    assert finished.error is not None
    assert gangs.cancelled == {"servers": "no worker is left"}
    assert texts[-1].endswith("0 of 2 workers train on")


def test_workers_that_outlive_servers_which_failed_are_stopped(ran):
    finished, gangs, _ = ran(
        servers=failing, worker_1=until_cancelled("worker-1"), worker_2=until_cancelled("worker-2")
    )  # fmt: skip
    assert isinstance(finished.error, NonFiniteError)
    assert set(gangs.cancelled.values()) == {"the training has ended"}


def test_cancelled_run_stops_its_workers(ran):
    def servers(gangs):
        after_workers(gangs)
        raise CancelledError("enough")

    ends = {f"worker_{number}": until_cancelled(f"worker-{number}", CancelledError("stopped")) for number in (1, 2)}
    with pytest.raises(CancelledError, match="enough"):
        ran(servers=servers, **ends)


def test_driver_says_why_a_worker_has_no_room_and_nothing_of_one_that_starts():
    seen = Remembers()
    view = many._OfWorker(seen, 2)
    for kind, text in (("placing", "being placed: 0 of 1 pods have a server"), ("quota", "1 CPU of 2 is free")):
        view.progress("train", GangEvent(kind="waiting", text=text, data={"kind": kind}))
    view.progress("train", GangEvent(kind="waiting", text="", data={"kind": "quota"}))
    assert seen.notes == ["worker 2: waits: 1 CPU of 2 is free"]
