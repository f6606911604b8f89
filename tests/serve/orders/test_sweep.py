"""What nobody told of is found, what is gone is stopped, what is due is started; each once."""

import time
from dataclasses import replace

import pytest
from tests.line.repositories import LINE, git

from gangline.git.clones import Clones
from gangline.line.request import trust
from gangline.serve.orders import sweep as sweep_module
from gangline.serve.orders.schedules import Schedules
from gangline.serve.orders.sweep import Sweeper

pytestmark = pytest.mark.long


def sweeper(yard):
    return Sweeper(yard.context, Clones(yard.context.home / "clones"), Schedules(yard.context.home / "schedules.json"))


def test_a_push_whose_event_was_lost_is_built_once(forged):
    forged.push(branch="topic")
    sweep = sweeper(forged)
    sweep.sweep()
    assert {each.ref for each in forged.orders("queued")} == {"refs/heads/main", "refs/heads/topic"}
    with forged.working():
        forged.until(lambda: not forged.orders("queued", "driving"))
    sweeper(forged).sweep()
    assert forged.orders("queued") == []
    (record,) = forged.records()  # main was made long ago
    assert record.commit.branch == "topic"
    (old,) = forged.orders("dropped")
    assert "older than a day" in old.note


def test_what_an_event_reported_is_not_offered_again(forged):
    forged.push(branch="main")
    forged.order("main")
    sweeper(forged).sweep()
    assert len(forged.orders()) == 1
    with forged.working():
        forged.until(lambda: forged.orders("done"))
    sweeper(forged).sweep()
    assert len(forged.orders()) == 1


def test_a_forge_that_is_away_hinders_nothing_else(forged):
    forged.forge.away = True
    sweeper(forged).sweep()
    forged.forge.away = False
    sweeper(forged).sweep()
    assert len(forged.orders("queued")) == 1


def test_a_closed_pull_request_stops_its_waiting_run(forged):
    sha = forged.push(branch="stranger")
    git(forged.repo, "update-ref", "refs/pull/7/head", sha)
    git(forged.repo, "switch", "--quiet", "main")
    git(forged.repo, "branch", "-D", "stranger")
    forged.forge.forks.add(7)
    order = forged.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7)
    with forged.working():
        forged.wait(order, "parked")
        git(forged.repo, "update-ref", "-d", "refs/pull/7/head")
        sweeper(forged).sweep()
    assert forged.context.database.orders.get(order.id).state == "dropped"
    (record,) = forged.records()
    assert record.run.cancel_requested == "refs/pull/7/head is gone"


def test_an_approval_that_notified_no_one_is_found(forged):
    sha = forged.push(branch="stranger")
    git(forged.repo, "update-ref", "refs/pull/7/head", sha)
    forged.forge.forks.add(7)
    order = forged.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7)
    with forged.working():
        forged.wait(order, "parked")
        trust.approve(forged.context.store, forged.records()[0], who="maintainer", sealer=forged.sealer)
        sweeper(forged).sweep()
        assert forged.wait(order).note.startswith("passed")


def test_a_schedule_starts_each_of_its_minutes_once(yard):
    yard.push(files={"line.toml": LINE + '[trigger]\nschedule = "* * * * *"\n'})
    with yard.working():
        first = yard.wait(yard.order())
    schedules = Schedules(yard.context.home / "schedules.json")
    assert [each.cron for each in schedules.all()] == ["* * * * *"]
    for _ in range(2):  # two services, or one that was started again
        late = sweeper(yard)
        late._scheduled_until = time.time() - 90
        late.enqueue_due()
    (due,) = yard.orders("queued")
    assert (due.cause, due.again, due.branch) == ("schedule", True, "main")
    with yard.working():
        second = yard.wait(due)
    assert second.run != first.run


def test_a_schedule_goes_with_its_line_or_its_branch(yard):
    yard.push(files={"line.toml": LINE + '[trigger]\nschedule = "* * * * *"\n'})
    with yard.working():
        yard.wait(yard.order())
        yard.push(files={"line.toml": LINE})
        yard.wait(yard.order())
    assert Schedules(yard.context.home / "schedules.json").all() == []


def test_a_clock_that_is_set_back_puts_no_sweep_off(forged, monkeypatch):
    monkeypatch.setattr(sweep_module, "SWEEP_SECONDS", 0.1)
    day = iter(range(1_000_000, 0, -1))
    forged.context = replace(forged.context, clock=lambda: float(next(day)) * 86_400)
    sweep, swept = sweeper(forged), []
    monkeypatch.setattr(sweep, "sweep", lambda: swept.append(time.monotonic()))
    sweep.start()
    try:
        forged.until(lambda: len(swept) >= 2)
    finally:
        sweep.close()
    assert swept == sorted(swept)
    assert len(swept) >= 2


def test_old_orders_go_and_what_is_at_their_refs_is_not_built_again(forged, monkeypatch):
    monkeypatch.setattr(sweep_module, "FORGET_BATCH", 2)
    for branch in ("one", "two", "three"):
        forged.push(branch=branch)
        forged.order(branch)
    with forged.working():
        forged.until(lambda: len(forged.orders("done")) == 3)
    sweeper(forged).sweep()
    kept = len(forged.orders("done"))
    later = time.time() + forged.context.site.serve.keep_orders_seconds + 3600
    forged.context = replace(forged.context, clock=lambda: later)
    sweeper(forged)._clean_up()
    assert kept == 3
    assert forged.orders("done", "dropped") == []
    assert len(forged.records()) == 3
    sweeper(forged).sweep()
    assert {each.ref for each in forged.orders("queued")} <= {"refs/heads/main"}
