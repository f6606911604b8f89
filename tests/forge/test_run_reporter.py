"""What a run tells its forge while it goes on: on change, at most once a minute, never at the run's cost."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.contracts.forge.conftest import forge_of
from tests.contracts.forge.stub import Failure, Stub
from tests.report import records

from gangline.errors import CapacityError
from gangline.forge.run_reporter import reporting_to_forge
from gangline.launch.protocol import GangEvent
from gangline.line.record.observer import SilentObserver
from gangline.spec.config.site import ForgeTable, ServeTable, Site
from gangline.spec.record import StageInfo

PULL = 7


@pytest.fixture
def stub():
    made = Stub("github")
    yield made
    made.close()


class Driven:
    """As much of a context as a RunReporter reads, over a new run."""

    def __init__(self, stub, **commit):
        record = records.bare()
        self.record = replace(record, commit=replace(record.commit, **commit), links={})
        stub.world.pulls[PULL] = {"sha": record.commit.sha, "branch": "wider", "fork": False, "state": "open"}
        table = ForgeTable(kind="github", url=stub.url, token="secret:env:T", projects={"team/tiny": "bytegpt"})
        self.site = Site(forge={"ours": table}, serve=ServeTable(public_url="https://runs.example.org"))
        self.environ = {"T": "t0ken"}
        self.observer = SilentObserver()
        self.driver = SimpleNamespace(kind="run")
        self.pending, self.events = [], []

    def change(self, change):
        self.record, self.events, self.pending = change(self.record), self.events + self.pending, []

    def record_event(self, stage, kind, text):
        self.pending.append((kind, text))

    def stage(self, name, state, message=""):
        stages = self.record.stages | {name: StageInfo(state=state, started="2026-01-01T00:00:00Z", message=message)}
        self.record = replace(self.record, stages=stages)
        if state == "done":
            self.observer.stage_ended(name, stages[name])


def step(number):
    data = {"event": "step", "rank": 0, "step": number, "loss": 2.0, "seconds": 0.1, "tokens": 100}
    return GangEvent(kind="progress", text="step", data=data)


def reported(stub, context):
    return [(s["state"], s["said"]) for _, s in stub.world.statuses if s["context"] == f"gangline/{context}"]


def until_reported(stub, context):
    """Letters not yet sent give way to newer ones, so what is to be seen on its way must have arrived first."""
    deadline = time.monotonic() + 30
    while not reported(stub, context):
        assert time.monotonic() < deadline, f"nothing of {context} was told within 30 s"
        time.sleep(0.005)


def test_steps_within_a_minute_are_one_word_and_the_end_is_reported_at_once(stub):
    ctx = Driven(stub)
    with reporting_to_forge(ctx):
        ctx.observer.run_started(ctx.record)
        ctx.observer.stage_started("train")
        until_reported(stub, "train")
        for number in range(1, 500):
            ctx.observer.progress("train", step(number))
        for name in ("submit", "train", "evaluate"):
            ctx.stage(name, "done", f"{name} is through")
    said = reported(stub, "train")
    assert len(said) <= 4
    assert said[0][0] == "pending"
    assert said[-1] == ("success", "evaluate is through")
    assert reported(stub, "publish") == [("pending", "not begun")]


def test_the_pull_request_reads_who_holds_the_place(stub):
    ctx = Driven(stub, pull_request=PULL)
    ctx.record = replace(ctx.record, gang=records.passed().gang)
    with reporting_to_forge(ctx):
        ctx.observer.stage_started("train")
        ctx.observer.progress("train", GangEvent(kind="waiting", text="vision holds 8 of 16", data={"until": "14:50"}))
        for _ in range(50):
            ctx.observer.progress("train", GangEvent(kind="waiting", text="vision holds 4 of 16"))
    (comment,) = stub.world.comments.values()
    assert "**▸ waits** vision holds 4 of 16" in comment["body"]
    assert sum(method in ("POST", "PATCH") and "comments" in path for method, path, *_ in stub.seen) <= 2
    assert reported(stub, "train")[-1] == ("pending", "waits: vision holds 4 of 16")


def test_a_driver_that_leaves_says_why(stub):
    ctx = Driven(stub, pull_request=PULL, trust="fork")

    def drive():
        with reporting_to_forge(ctx):
            ctx.observer.stage_started("train")
            raise CapacityError("bytegpt-1 is of a fork: a maintainer reads it first")

    with pytest.raises(CapacityError):
        drive()
    assert reported(stub, "train")[-1] == ("pending", "bytegpt-1 is of a fork: a maintainer reads it first")
    (comment,) = stub.world.comments.values()
    assert f"gangline approve {ctx.record.run.id}" in comment["body"]


def test_the_report_stage_has_the_last_word_under_a_pull_request(stub):
    ctx = Driven(stub, pull_request=PULL)
    with reporting_to_forge(ctx):
        ctx.observer.stage_started("train")
        ctx.observer.progress("train", GangEvent(kind="waiting", text="vision holds 8 of 16"))
        ctx.observer.stage_started("report")
        forge_of("github", stub.url).upsert_comment("team/tiny", PULL, "<!-- gangline:bytegpt -->", LAST)
        ctx.observer.progress("report", GangEvent(kind="waiting", text="late"))
    (comment,) = stub.world.comments.values()
    assert comment["body"] == LAST


LAST = "<!-- gangline:bytegpt -->\nthe report"


def test_trouble_is_one_event_whatever_its_number(stub):
    ctx = Driven(stub)
    stub.fail(*[Failure(403, body=b'{"message": "no right"}')] * 50)
    with reporting_to_forge(ctx):
        ctx.observer.run_started(ctx.record)
        for name in ("build", "train", "gate", "publish"):
            ctx.stage(name, "done", "done")
    assert len(ctx.events) == 1
    assert "refuses the token" in ctx.events[0][1]


@pytest.mark.parametrize("change", [{"token": None}, {"projects": {"team/tiny": "other"}}])
def test_without_a_token_or_a_claim_no_one_is_asked(stub, change):
    ctx = Driven(stub)
    ctx.site = replace(ctx.site, forge={"ours": replace(ctx.site.forge["ours"], **change)})
    with reporting_to_forge(ctx):
        ctx.observer.run_started(ctx.record)
    assert (stub.seen, ctx.record.links) == ([], {})


def test_a_secret_that_is_not_there_is_an_event(stub):
    ctx = Driven(stub)
    ctx.environ = {}
    with reporting_to_forge(ctx):
        ctx.observer.run_started(ctx.record)
    assert [kind for kind, _ in ctx.events] == ["forge"]
    assert "secret:env:T" in ctx.events[0][1]
    assert stub.seen == []
