"""From exits to what follows, without a process."""

import os
import signal

import pytest

from gangline.errors import retry_class
from gangline.keeper.coordination.restart_policy import RestartBudget, decide_restart
from gangline.keeper.ranks.generation_result import GenerationResult
from gangline.keeper.ranks.rank_exit import RankExit, classify, culprit, exit_of, read_oom_kills
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang


def died(code, *, rank=1, number=None):
    return RankExit(rank=rank, code=code, signal=number, mono=1.0)


def outcome(failed=None, *, exits=(), hang=None, stop=None, progressed=True):
    return GenerationResult(
        exits=tuple(exits) or ((failed,) if failed else ()),
        failed=failed,
        hang=hang,
        stacks={},
        stop=stop,
        started={},
        step=7,
        progressed=progressed,
    )


def judged(given, *, max_events=3, oom_kills=0):
    return decide_restart(given, RestartBudget(max_events), oom_kills=oom_kills, now=100.0)


@pytest.mark.parametrize(("program", "code", "number"), [("os._exit(42)", 42, None), ("os.abort()", 134, 6)])
def test_wait_status_is_read_as_the_shell_does(program, code, number):
    pid = os.posix_spawn("/usr/bin/env", ["env", "python3", "-c", f"import os; {program}"], os.environ)
    assert exit_of(3, os.waitpid(pid, 0)[1], mono=1.5) == RankExit(rank=3, code=code, signal=number, mono=1.5)


def test_first_death_decides_and_losers_of_peers_never_do():
    exits = [died(0, rank=2), died(34, rank=0), died(30, rank=1), died(31, rank=3)]
    assert culprit(exits).rank == 1
    assert culprit(exits[:2]).rank == 0
    assert culprit(exits[:1]) is None


def test_sigkill_counted_by_the_kernel_is_out_of_memory():
    assert classify(died(137, number=9), oom_kills=1) == (32, "changed")
    assert classify(died(137, number=9), oom_kills=0) == (137, "same")
    assert classify(died(30), oom_kills=1) == (30, "never")


@pytest.mark.parametrize("code", [2, 10, 20, 30, 31, 32, 33, 34, 40, 42, 50, 60, 70, 99, 134, 137, 139, 143])
def test_only_classes_that_a_repeat_helps_are_repeated(code):
    verdict = judged(outcome(died(code)))
    retry = retry_class(code, saved=code == 143)
    assert verdict.restart == (retry in ("same", "free"))
    assert verdict.charged == (retry == "same")
    assert (verdict.exit_code, verdict.culprit) == (code, 1)


def test_verdict_repeats_what_the_failed_rank_said():
    verdict = decide_restart(
        outcome(died(31)), RestartBudget(3), oom_kills=0, now=1.0, rank_reason="NonFiniteError: step 4: loss nan"
    )
    assert verdict.reason == "rank 1 ended with code 31: NonFiniteError: step 4: loss nan; see logs/1.log"
    assert judged(outcome(died(31))).reason == "rank 1 ended with code 31; see logs/1.log"


def test_storage_that_is_away_gets_time():
    assert judged(outcome(died(40))).pause_seconds == 2
    assert judged(outcome(died(137, number=9))).pause_seconds == 0


def test_spent_budget_is_a_training_error_that_says_so():
    verdict = judged(outcome(hang=Hang(rank=1, reason="rank 1 made no progress", silent_seconds=9)), max_events=0)
    assert (verdict.restart, verdict.exit_code, verdict.retry) == (False, 33, "same"), "it never had a budget"
    budget = RestartBudget(1)
    assert decide_restart(outcome(died(137, number=9)), budget, oom_kills=0, now=0.0).restart
    verdict = decide_restart(outcome(died(137, number=9)), budget, oom_kills=0, now=10.0)
    assert (verdict.restart, verdict.exit_code, verdict.retry) == (False, 30, "never")
    assert "max_events = 1 is used up" in verdict.reason


@pytest.mark.parametrize("number", [None, 15])
def test_keeper_that_no_one_asked_never_leaves_with_the_code_of_those_that_were(number):
    verdict = judged(outcome(died(143, number=number), progressed=False), max_events=0)
    assert (verdict.restart, verdict.exit_code) == (False, 30), "a Job would replace its pods for ever"


@pytest.mark.parametrize(
    ("codes", "code", "retry"), [((143, 143), 143, "free"), ((143, 137), 143, "same"), ((0, 0), 0, "never")]
)
def test_stop_is_free_when_all_saved(codes, code, retry):
    exits = [died(each, rank=rank, number=9 if each == 137 else None) for rank, each in enumerate(codes)]
    stop = StopRequest(exit_code=128 + signal.SIGTERM, reason="asked to stop by SIGTERM", save=True)
    verdict = judged(outcome(exits=exits, stop=stop))
    assert (verdict.restart, verdict.exit_code, verdict.retry) == (False, code, retry)


def test_budget_counts_events_and_refills_after_a_clean_hour():
    budget = RestartBudget(2)
    times = [0.0, 0.5, 1.0, 2.0, 10.0, 3602.0 + 10.0]
    answers = [budget.charge(now) for now in times]
    assert answers == ["charged", "same event", "same event", "charged", "refused", "charged"]


def test_gang_that_dies_as_fast_as_it_starts_is_charged_after_four_restarts():
    budget = RestartBudget(2)
    answers = [budget.charge(0.1 * number) for number in range(9)]
    assert answers == ["charged", *["same event"] * 3, "charged", *["same event"] * 3, "refused"]


def test_kernel_reports_how_often_memory_ran_out_or_nothing():
    assert read_oom_kills() is None or read_oom_kills() >= 0
