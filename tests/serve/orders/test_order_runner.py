"""One order at a time, from its ref to its end; drivers are quick stand-ins, everything else is real."""

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.line.repositories import LINE, git
from tests.serve.orders.yard import Yard

from gangline.line.record import states
from gangline.line.record.store import RecordStore
from gangline.line.request import trust
from gangline.line.run.driver_process import DriverProcess
from gangline.registry.project_owner import ProjectClaim, claim_key
from gangline.serve.database.types import Order, RunFilter
from gangline.serve.orders import retry_policy
from gangline.serve.orders.notifications import OrderNotifications


def test_an_order_builds_what_is_at_its_ref_when_it_starts(yard):
    order = yard.order()
    newest = yard.push()
    with yard.working():
        done = yard.wait(order)
    (record,) = yard.records()
    assert (done.commit, done.run, done.note) == (
        newest,
        record.run.id,
        "passed: every stage is done and no gate said no",
    )
    assert (record.commit.sha, record.commit.branch) == (newest, "main")
    assert yard.context.database.runs.get(record.run.id).verdict == "passed"


@pytest.mark.slow
def test_a_refusal_is_an_answer(yard):
    yard.push("refuse")
    with yard.working():
        assert yard.wait(yard.order()).note == "refused: it is refuse"


def test_the_same_commit_is_driven_once_however_often_it_is_ordered(yard):
    yard.push()
    with yard.working():
        first = yard.wait(yard.order())
        second = yard.wait(yard.order())
    assert first.run == second.run
    assert len(yard.starts()) == 1


def test_again_is_another_attempt_and_its_order_started_twice_is_not(yard):
    yard.push()
    with yard.working():
        first = yard.wait(yard.order())
        second = yard.wait(yard.order(again=True))
    assert first.run != second.run
    assert sorted(each.run.attempt for each in yard.records()) == [1, 2]
    assert len(yard.starts()) == 2


def test_a_named_commit_is_built_with_its_overrides(yard):
    old = yard.push()
    yard.push()
    with yard.working():
        done = yard.wait(yard.order(commit=old, overrides=("train.seed=7",), cause="api"))
    (record,) = yard.records()
    assert (record.commit.sha, record.inputs.values["train.seed"], done.commit) == (old, 7, old)


def test_a_commit_that_is_not_on_its_branch_is_not_built(yard):
    yard.push(branch="main")
    stray = yard.push(branch="stray")
    with yard.working():
        dropped = yard.wait(yard.order(commit=stray, cause="api"), "dropped")
    assert "is not on refs/heads/main" in dropped.note
    assert yard.records() == []


def test_a_ref_that_is_gone_builds_nothing_and_stops_its_runs(forged):
    forged.push("hang", branch="topic")
    with forged.working():
        first = forged.order("topic")
        forged.until(lambda: forged.context.database.orders.get(first.id).run)
        git(forged.repo, "switch", "--quiet", "main")
        git(forged.repo, "branch", "-D", "topic")
        gone = forged.wait(forged.order("topic"), "dropped")
        stopped = forged.wait(first)
    assert "is gone" in gone.note
    assert stopped.note.startswith("cancelled")


def test_what_the_triggers_leave_out_is_dropped_with_the_reason(yard):
    rules = '[trigger]\nbranches = ["main"]\npaths = ["*.py", "line.toml"]\n'
    yard.push(files={"line.toml": LINE + rules})
    with yard.working():
        yard.wait(yard.order())
        yard.push(branch="topic")
        assert "trigger.branches leaves topic out" in yard.wait(yard.order("topic"), "dropped").note
        git(yard.repo, "switch", "--quiet", "main")
        yard.push(files={"README.md": "x"})
        assert "no path of trigger.paths" in yard.wait(yard.order(), "dropped").note
        asked = yard.order(cause="api")
        assert yard.wait(asked).run
        yard.push(files={"answer.py": "print()"})
        assert yard.wait(yard.order()).run
    assert len(yard.records()) == 3


def test_a_branch_without_a_line_starts_nothing(yard):
    git(yard.repo, "rm", "--quiet", "line.toml")
    yard.push()
    with yard.working():
        assert "line.toml" in yard.wait(yard.order(), "dropped").note


def test_a_line_that_does_not_hold_is_reported_at_the_forge(forged, monkeypatch):
    monkeypatch.setenv("TOKEN", "t")
    table = replace(forged.context.site.forge["ours"], token="secret:env:TOKEN")
    site = replace(forged.context.site, forge={"ours": table})
    forged.context = replace(forged.context, site=site, environ={**forged.context.environ, "TOKEN": "t"})
    sha = forged.push(files={"line.toml": LINE + "nonsense = 1\n"})
    with forged.working():
        done = forged.wait(forged.order())
    assert "nonsense" in done.note
    ((commit, status),) = forged.forge.statuses
    assert (commit, status.context, status.state) == (sha, "gangline/build", "error")


def test_a_repository_cannot_call_itself_another_project(yard):
    yard.push(files={"line.toml": LINE.replace('"cheap"', '"other"')})
    with yard.working():
        assert "project.name" in yard.wait(yard.order()).note
    assert yard.records() == []


@pytest.mark.row("A1")
def test_a_project_that_another_repository_owns_in_the_store_is_not_built(yard):
    key = yard.sealer.key
    claim = ProjectClaim(project="cheap", repository="forge.example/acme/cheap", time="2026-01-01").signed(key)
    yard.context.store.put(claim_key("cheap"), claim.to_json())
    yard.push()
    with yard.working():
        done = yard.wait(yard.order())
    assert f"wanted a name of this repository, {yard.repo}, found 'cheap', which belongs to forge.exa" in done.note
    assert yard.records() == []


@pytest.mark.row("A1")
def test_a_branch_that_calls_itself_another_project_is_built_as_the_one_of_the_default_branch(yard):
    yard.push()
    yard.push(branch="topic", files={"line.toml": LINE.replace('"cheap"', '"other"')})
    with yard.working():
        yard.wait(yard.order("topic"))
    assert [record.run.project for record in yard.records()] == ["cheap"]


def test_no_room_is_waited_for_without_losing_patience(yard, monkeypatch):
    monkeypatch.setitem(retry_policy._WAITS, 20, 0.2)
    monkeypatch.setattr(retry_policy, "MOST_TRIES", 1)
    yard.push("room")
    order = yard.order()
    with yard.working():
        yard.until(lambda: len(yard.starts()) >= 2)  # more than one try
        yard.starts_file.with_name("starts.healed").touch()
        done = yard.wait(order)
    assert (done.tries, len(yard.records())) == (0, 1)


@pytest.mark.parametrize(
    "word", [pytest.param("away", marks=pytest.mark.slow), pytest.param("bug", marks=pytest.mark.slow), "die"]
)
def test_what_keeps_failing_is_put_aside_after_its_last_try(yard, monkeypatch, word):
    monkeypatch.setattr(retry_policy, "RETRY_SECONDS", (0.05,))
    monkeypatch.setattr(retry_policy, "MOST_TRIES", 2)
    yard.push(word)
    with yard.working():
        aside = yard.wait(yard.order(), "quarantined")
    assert aside.tries == 2
    assert "failed 2 times" in aside.note
    assert len({run for run, _ in yard.starts()}) == 1


@pytest.mark.slow
def test_what_fails_once_continues_with_its_run(yard, monkeypatch):
    monkeypatch.setattr(retry_policy, "RETRY_SECONDS", (1.0,) * 4)
    yard.push("away")
    order = yard.order()
    with yard.working():
        yard.wait(order, "parked")
        yard.starts_file.with_name("starts.healed").touch()
        done = yard.wait(order)
    assert len({run for run, _ in yard.starts()}) == 1
    assert done.note.startswith("passed")


@pytest.mark.slow
def test_a_forge_that_is_away_loses_no_order(forged, monkeypatch):
    monkeypatch.setattr(retry_policy, "RETRY_SECONDS", (0.2,) * 4)
    forged.push()
    forged.forge.away = True
    order = forged.order()
    with forged.working():
        assert "away" in forged.wait(order, "parked").note
        forged.forge.away = False
        assert forged.wait(order).run


@pytest.mark.row("P5")
def test_a_forks_run_waits_for_its_approval(forged):
    fork(forged)
    order = forged.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7, cause="pull_request")
    with forged.working():
        parked = forged.wait(order, "parked")
        assert "gangline approve" in parked.note
        (record,) = forged.records()
        assert (record.commit.trust, record.commit.pull_request) == ("fork", 7)
        trust.approve(forged.context.store, record, who="maintainer", sealer=forged.sealer)
        forged.context.database.orders.unpark(parked.run, now=time.time())  # a worker that looks once more does it, too
        assert forged.wait(order).note.startswith("passed")


def test_an_approval_while_the_order_is_being_parked_is_not_overheard(forged, monkeypatch):
    fork(forged)
    order = forged.order(ref="refs/pull/7/head", branch="pull-7", pull_request=7)
    monkeypatch.setattr(retry_policy, "awaits_approval", approving(forged))
    with forged.working():
        assert forged.wait(order).note.startswith("passed")


def approving(yard):
    """Approves at the very moment somebody finds that approval is missing."""

    def asks(record):
        waits = trust.awaits_approval(record)
        trust.approve(yard.context.store, record, who="maintainer", sealer=yard.sealer)
        return waits

    return asks


def fork(yard):
    git(yard.repo, "switch", "--quiet", "--create", "stranger")
    yard.push(branch="stranger", files={"line.toml": LINE + '[trigger]\nforks = "approve"\n'})
    git(yard.repo, "update-ref", "refs/pull/7/head", "HEAD")
    git(yard.repo, "switch", "--quiet", "main")
    git(yard.repo, "branch", "-D", "stranger")
    yard.forge.forks.add(7)


@pytest.mark.row("P5")
def test_a_fork_cannot_change_the_rules_it_is_judged_by(forged):
    forged.push(files={"line.toml": LINE + '[trigger]\nforks = "off"\n'})
    fork(forged)
    with forged.working():
        dropped = forged.wait(forged.order(ref="refs/pull/7/head", pull_request=7), "dropped")
    assert 'forks = "off"' in dropped.note
    assert forged.records() == []


@pytest.mark.row("P5")
def test_a_hint_that_calls_a_fork_our_own_is_not_believed(forged):
    fork(forged)
    with forged.working():
        parked = forged.wait(forged.order(ref="refs/pull/7/head", pull_request=7, trust="own"), "parked")
    assert parked.trust == "fork" or forged.records()[0].commit.trust == "fork"


def test_a_push_leaves_its_commit_to_its_pull_request(forged):
    sha = forged.push(branch="pull-8")
    git(forged.repo, "update-ref", "refs/pull/8/head", sha)
    first = forged.order("pull-8")
    second = forged.order(ref="refs/pull/8/head", branch="pull-8", pull_request=8, cause="pull_request")
    with forged.working():
        assert "pull request 8" in forged.wait(first, "dropped").note
        forged.wait(second)
    (record,) = forged.records()
    assert record.commit.pull_request == 8


@pytest.mark.slow
def test_a_killed_driver_is_replaced_and_the_run_continues(yard, monkeypatch):
    monkeypatch.setattr(retry_policy, "RETRY_SECONDS", (0.1,) * 4)
    yard.push("hang")
    order = yard.order()
    with yard.working():
        yard.until(yard.starts)
        os.kill(yard.starts()[0][1], signal.SIGKILL)
        yard.until(lambda: len(yard.starts()) == 2)
        (record,) = yard.records()
        cancel(yard, record)
        assert yard.wait(order).note.startswith("cancelled")


def test_a_run_that_ended_without_its_report_gets_a_driver_for_that_and_one_with_it_gets_none(yard):
    yard.push()
    with yard.working():
        first = yard.wait(yard.order())
        unreported = yard.wait(yard.order())
        report(yard, *yard.records())
        reported = yard.wait(yard.order())
    assert first.run == unreported.run == reported.run
    started = [
        DriverProcess.newest(yard.context.home / "orders", each.id) is not None
        for each in (first, unreported, reported)
    ]
    assert started == [True, True, False]


def report(yard, record):
    """As a driver's last stage leaves it."""
    records = RecordStore.of(yard.context.store, record, yard.sealer)
    records.change(lambda each: states.start_stage(each, "report", now="2026-01-01T00:00:00Z"))
    records.change(
        lambda each: states.end_stage(each, "report", "done", now="2026-01-01T00:00:00Z", seconds=0.1, message="")
    )


def cancel(yard, record):
    RecordStore.of(yard.context.store, record, yard.sealer).change(
        lambda each: replace(each, run=replace(each.run, cancel_requested="asked"))
    )


@pytest.mark.row("C2")
def test_a_service_that_stops_leaves_drivers_running_and_the_next_one_finds_them(yard):
    yard.push("hang")
    order = yard.order()
    with yard.working():
        yard.until(lambda: yard.context.database.orders.get(order.id).run)
    assert yard.context.database.orders.get(order.id).state == "queued"
    with yard.working():
        yard.wait(order, "driving")
        time.sleep(0.5)
        (record,) = yard.records()
        cancel(yard, record)
        assert yard.wait(order).run == record.run.id
    assert len(yard.starts()) == 1


@pytest.mark.slow
def test_no_more_orders_are_driven_than_the_site_allows(yard):
    site = replace(yard.context.site, limits=replace(yard.context.site.limits, active_runs=1))
    yard.context = replace(yard.context, site=site)
    for branch in ("one", "two"):
        yard.push("hang", branch=branch)
        yard.order(branch)
    with yard.working():
        yard.until(yard.starts)
        time.sleep(1.5)
        assert len(yard.orders("driving")) == 1
        for _ in range(2):
            yard.until(lambda: [cancel(yard, each) for each in yard.records() if each.run.state == "open"])
            time.sleep(0.5)
        yard.until(lambda: len(yard.orders("done")) == 2)


def test_an_order_of_a_repository_that_the_site_forgot_is_put_aside(yard, monkeypatch):
    monkeypatch.setattr(retry_policy, "RETRY_SECONDS", (0.05,) * 4)
    stray = yard.context.database.orders.add(Order(project="other", ref="refs/heads/main"), now=1.0)
    with yard.working():
        assert "names no other" in yard.wait(stray, "quarantined").note


def test_a_branch_that_only_looks_like_another_builds_nothing_and_says_why(forged, monkeypatch):
    reports = []
    monkeypatch.setattr(
        OrderNotifications,
        "commit_refused",
        lambda _, order, source, commit, error: reports.append(commit) or str(error),
    )
    sha = forged.push()
    git(forged.repo, "branch", "ma\u200bin", sha)
    with forged.working():
        done = forged.wait(forged.order("ma\u200bin"))
    assert "shows all of its characters" in done.note
    assert "ma\\u200bin" in done.note
    assert (reports, forged.records()) == ([sha], [])


@pytest.mark.row("P5")
def test_a_branch_called_head_builds_nothing_and_says_why(yard):
    yard.push()
    sha = yard.push(branch="evil")
    git(yard.repo, "update-ref", "refs/heads/HEAD", sha)
    with yard.working():
        done = yard.wait(yard.order("HEAD"))
    assert "wanted a name that git takes for a branch" in done.note
    assert yard.records() == []


@pytest.mark.parametrize("name", ["feature/ü#1", "a=b+c,(d)", "it's;$(x)"])
def test_a_branch_of_any_name_that_git_takes_is_built_and_recorded_under_it(yard, name):
    yard.push()
    sha = yard.push(branch=name)
    with yard.working():
        done = yard.wait(yard.order(name))
    (record,) = [each for each in yard.records() if each.commit.sha == sha]
    assert (done.run, record.commit.branch, record.run.verdict) == (record.run.id, name, "passed")
    (row,) = yard.context.database.runs.search(RunFilter(branch=name, limit=5))
    assert row.run == record.run.id


@pytest.fixture
def busy(tmp_path):
    """One worker, which follows a run that does not end by itself."""
    with ExitStack() as leaving:
        yard = Yard(tmp_path, workers=1, forge=True)
        leaving.callback(yard.close)
        yard.push("hang", branch="topic")
        order = yard.order("topic")
        leaving.enter_context(yard.working())
        yard.until(lambda: yard.context.database.orders.get(order.id).run)
        yield yard, order


def test_a_deleted_branch_frees_the_only_worker(busy):
    yard, order = busy
    git(yard.repo, "switch", "--quiet", "main")
    git(yard.repo, "branch", "--quiet", "-D", "topic")
    gone = yard.order("topic")
    assert "is gone" in yard.wait(gone, "dropped").note
    assert "cancelled" in yard.wait(order).note


def test_a_newer_push_is_driven_though_the_only_worker_follows_the_older_one(busy):
    yard, order = busy
    newest = yard.push(branch="topic")
    done = yard.wait(yard.order("topic"))
    assert (done.commit, done.note) == (newest, "passed: every stage is done and no gate said no")
    yard.until(lambda: [cancel(yard, each) for each in yard.records() if each.run.state == "open"])
    yard.wait(order)


def test_a_repeat_is_put_off_where_the_only_worker_follows_its_run(busy):
    yard, order = busy
    parked = yard.wait(yard.order("topic"), "parked")
    assert (parked.run, parked.note) == (
        yard.context.database.orders.get(order.id).run,
        f"{parked.run} is driven already",
    )
    assert len(yard.starts()) == 1
    yard.until(lambda: [cancel(yard, each) for each in yard.records() if each.run.state == "open"])
    yard.wait(order)
