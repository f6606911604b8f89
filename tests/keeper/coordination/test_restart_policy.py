"""From exits to what follows, without a process."""

import os

import pytest

from gangline.errors import retry_class
from gangline.keeper.coordination.restart_policy import RestartBudget, RestartDecision, decide_restart, replaced_node
from gangline.keeper.ipc.rank_report import RankReport
from gangline.keeper.ranks.generation_result import GenerationResult
from gangline.keeper.ranks.rank_exit import RankExit, classify, culprit, exit_of, read_oom_kills, with_report
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang


def died(code, *, rank=1, number=None, mono=1.0):
    """A rank whose runtime wrote this code, or that a signal ended."""
    return RankExit(rank=rank, code=code, signal=number, mono=mono, is_stated=number is None)


def own(code, *, rank=1):
    """A rank without a word of a runtime."""
    return with_report(RankExit(rank=rank, code=code, mono=1.0), None, finished=True)


def outcome(failed=None, *, exits=(), hang=None, stop=None, progressed=True, step=7, saved_step=None):
    return GenerationResult(
        exits=tuple(exits) or ((failed,) if failed else ()),
        failed=failed,
        hang=hang,
        stacks={},
        stop=stop,
        started={},
        step=step,
        saved_step=saved_step,
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


@pytest.mark.parametrize("code", [2, 10, 30, 31, 32, 33, 34, 40, 50, 137, 143])
def test_only_classes_that_a_repeat_helps_are_repeated(code):
    verdict = judged(outcome(died(code)))
    retry = retry_class(code, saved=code == 143)
    assert verdict.restart == (retry in ("same", "free"))
    assert verdict.charged == (retry == "same")
    assert (verdict.exit_code, verdict.culprit) == (code, 1)


@pytest.mark.parametrize("code", [1, 2, 3, 10, 20, 30, 31, 32, 33, 34, 35, 40, 42, 50, 60, 70, 75, 134, 139])
def test_code_that_no_runtime_wrote_is_the_programs_own_and_never_repeated(code):
    verdict = judged(outcome(own(code)))
    assert (verdict.restart, verdict.exit_code, verdict.retry, verdict.culprit) == (False, 30, "never", 1)
    said = verdict.reason.removesuffix("; see logs/1.log")
    assert said.removesuffix(", its program's own") == f"rank 1 ended with code {code}"


@pytest.mark.parametrize(
    ("number", "code", "restart"), [(9, 137, True), (15, 143, True), (6, 30, False), (11, 30, False)]
)
def test_rank_that_was_killed_is_started_again_and_one_that_crashed_is_not(number, code, restart):
    verdict = judged(outcome(died(128 + number, number=number)))
    assert (verdict.exit_code, verdict.restart) == (code, restart)
    assert f"rank 1 ended by signal {number}" in verdict.reason


@pytest.mark.parametrize(
    ("code", "report", "stated", "left"),
    [
        (40, RankReport(code=40, reason="StorageError: away"), True, False),
        (70, RankReport(code=70, reason="SystemExit: 70"), False, False),  # a rank cancels no run
        (70, RankReport(code=30, reason="SystemExit: 70"), False, False),
        (31, RankReport(code=0, reason="finished"), False, False),  # of the process before, below one shell
        (143, RankReport(code=143, reason="stopped as asked"), True, True),
        (1, RankReport(code=143, reason="stopped as asked"), False, True),  # a launcher ends with 1 then
        (143, None, False, True),
        (0, None, False, True),
        (1, None, False, False),
    ],
)
def test_code_counts_as_one_of_gangline_if_the_runtime_wrote_the_same(code, report, stated, left):
    found = with_report(RankExit(rank=0, code=code), report, finished=False)
    assert (found.is_stated, found.left, found.finished) == (stated, left, False)
    killed = with_report(RankExit(rank=0, code=137, signal=9), report, finished=True)
    assert (killed.is_stated, killed.left, killed.finished) == (False, False, False)


def test_rank_that_left_with_0_before_another_failed_is_named():
    exits = [died(0, rank=2, mono=0.5), died(0, rank=1, mono=98.75), own(1, rank=0), died(0, rank=3, mono=101.0)]
    said = "rank 0 ended with code 1; ranks 2, 1 had ended with code 0, the first 99.5 s before; see logs/0.log"
    assert judged(outcome(exits[2], exits=exits)).reason == said
    hang = Hang(rank=0, reason="rank 0 made no progress", silent_seconds=9)
    assert judged(outcome(exits=exits[1:2], hang=hang)).reason == (
        "rank 0 made no progress; rank 1 had ended with code 0 1.2 s before"
    )
    assert "had ended" not in judged(outcome(exits[2], exits=exits[2:])).reason
    killed = died(137, rank=0, number=9)
    assert judged(outcome(killed, exits=[*exits[:2], killed])).reason == "rank 0 ended by signal 9"


def test_verdict_repeats_what_the_failed_rank_said():
    verdict = decide_restart(
        outcome(died(31)), RestartBudget(3), oom_kills=0, now=1.0, rank_reason="NonFiniteError: step 4: loss nan"
    )
    assert verdict.reason == "rank 1 ended with code 31: NonFiniteError: step 4: loss nan; see logs/1.log"
    assert judged(outcome(died(31))).reason == "rank 1 ended with code 31; see logs/1.log"
    assert judged(outcome(own(31))).reason == "rank 1 ended with code 31, its program's own; see logs/1.log"


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


def stop(code=143, **fields):
    return StopRequest(exit_code=code, reason="asked to stop by SIGTERM", save=True, **fields)


def asked(code, *, rank=0, finished=False):
    """A rank that was asked to stop."""
    number = 9 if code == 137 else None
    return with_report(RankExit(rank=rank, code=code, signal=number), None, finished=finished)


@pytest.mark.parametrize(("codes", "retry"), [((143, 143), "free"), ((143, 137), "same"), ((143, 0), "free")])
def test_stop_is_free_when_all_left_by_themselves(codes, retry):
    exits = [asked(code, rank=rank) for rank, code in enumerate(codes)]
    verdict = judged(outcome(exits=exits, stop=stop()))
    assert (verdict.restart, verdict.exit_code, verdict.retry) == (False, 143, retry)


@pytest.mark.parametrize(
    ("finished", "code", "said"),
    [
        ((True, True), 0, "all ranks were done"),
        ((True, False), 70, "rank 1 left with code 0 and did not report the last step"),
        ((False, False), 70, "ranks 0, 1 left with code 0 and did not report the last step"),
    ],
)
def test_ending_with_0_after_a_stop_request_is_done_only_if_the_steps_say_so(finished, code, said):
    exits = [asked(0, rank=rank, finished=each) for rank, each in enumerate(finished)]
    verdict = judged(outcome(exits=exits, stop=stop(70)))
    assert (verdict.restart, verdict.exit_code, verdict.retry) == (False, code, "never")
    assert said in verdict.reason


@pytest.mark.parametrize(
    ("step", "saved", "said"),
    [
        (42, 42, "step 42 is saved"),
        (42, 0, "nothing was saved: 42 steps are lost"),
        (42, 41, "nothing was saved after step 41: 1 step is lost"),
        (None, 0, "no step was finished"),
        (42, None, "what its program saved is not known"),
        (None, None, "what its program saved is not known"),
    ],
)
@pytest.mark.parametrize("resize", [False, True])
def test_stop_says_what_it_saved_and_what_is_lost(step, saved, said, resize):
    found = outcome(exits=[asked(143)], stop=stop(resize=resize), step=step, saved_step=saved)
    assert judged(found).reason == f"asked to stop by SIGTERM; {said}"


def test_free_restart_wants_a_step_beyond_that_of_the_last_free_one():
    budget = RestartBudget(1)
    steps = enumerate((5, 9, 9, 9))
    answers = [decide_restart(outcome(died(143), step=step), budget, oom_kills=0, now=10.0 * at) for at, step in steps]
    assert [(each.restart, each.charged) for each in answers] == [
        (True, False),
        (True, False),
        (True, True),
        (False, False),
    ]
    assert answers[-1].exit_code == 30
    budget = RestartBudget(1)
    leaves = RestartDecision(restart=False, exit_code=143, retry="free", reason="node 1 was asked to stop by SIGTERM")
    answers = [replaced_node(leaves, step, budget, now=10.0 * at) for at, step in enumerate((5, None, 5, 5, 6))]
    assert [(each.restart, each.charged) for each in answers] == [
        (True, False), (True, False), (True, True), (False, False), (True, False),
    ]  # fmt: skip
    assert "max_events = 1 is used up" in answers[3].reason


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
