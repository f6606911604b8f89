"""Reports of several nodes as one outcome: the first failure decides, whatever clocks and order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import IntegrityError
from gangline.keeper.coordination.reports import NodeReport, join_reports, report_of
from gangline.keeper.coordination.restart_policy import RestartBudget, decide_restart
from gangline.keeper.ranks.generation_result import GenerationResult, LostNode
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.keeper.ranks.watchdog import Hang


def died(rank, code, at):
    return RankExit(rank=rank, code=code, mono=at, is_stated=code not in (0, 137), left=code in (0, 143))


def report(*exits, failed=None, **fields):
    return NodeReport(generation=0, exits=exits, failed=failed, progressed=True, **fields)


def ended(rank, code, at, **fields):
    exit_ = died(rank, code, at)
    return report(exit_, failed=exit_ if code else None, **fields)


def verdict_of(reports, *, lost=None, stop=None, restarts=3):
    joined = join_reports(reports, began=100.0, stop=stop, lost=lost)
    return decide_restart(
        joined.outcome, RestartBudget(restarts), oom_kills=joined.oom_kills, now=200.0, rank_reason=joined.rank_reason
    )


@given(st.permutations([ended(0, 34, 1.0), ended(1, 34, 0.5), ended(2, 31, 2.0, rank_reason="nan"), ended(3, 30, 3.0)]))
def test_first_failure_that_is_none_of_a_lost_peer_decides_in_any_order(reports):
    verdict = verdict_of(reports)
    assert (verdict.exit_code, verdict.culprit) == (31, 2)
    assert "nan" in verdict.reason


def test_words_log_and_memory_kills_are_those_of_the_culprits_node():
    reports = [ended(0, 34, 1.0, oom_kills=0, log=("peer",)), ended(1, 137, 0.9, oom_kills=2, log=("big",))]
    joined = join_reports(reports, began=0.0, stop=None)
    assert (joined.oom_kills, joined.outcome.log) == (2, ("big",))
    assert verdict_of(reports).exit_code == 32
    reports = [ended(0, 137, 1.0, oom_kills=0), ended(1, 34, 1.1, oom_kills=1)]
    assert verdict_of(reports).exit_code == 137, "somebody else's memory is no reason"


def test_times_are_of_the_leaders_clock_again():
    outcome = join_reports([ended(0, 0, 1.0), ended(1, 30, 2.5)], began=100.0, stop=None).outcome
    assert [(each.rank, each.mono) for each in outcome.exits] == [(0, 101.0), (1, 102.5)]
    assert outcome.failed.mono == 102.5


@pytest.mark.parametrize(
    ("failed", "code"),
    [((0, 34, 1.0), 34), ((0, 30, 1.0), 30), ((0, 30, 9.0), 34), ((0, 0, 9.0), 34)],
)
def test_node_that_went_away_explains_what_came_after_it(failed, code):
    lost = LostNode(rank=1, reason="node 1 was lost", mono=105.0)
    assert verdict_of([ended(*failed)], lost=lost).exit_code == code


def test_lost_node_costs_one_event_and_a_spent_budget_ends_it():
    lost = LostNode(rank=1, reason="node 1 was lost", mono=105.0)
    verdict = verdict_of([report()], lost=lost)
    assert (verdict.restart, verdict.charged, verdict.retry, verdict.reason) == (True, True, "same", "node 1 was lost")
    assert verdict_of([report()], lost=lost, restarts=0).exit_code == 34


def test_hang_is_blamed_on_who_is_furthest_behind_of_all_nodes():
    def hang(rank, step, waits, silent, *, stopped=False):
        return Hang(
            rank=rank, reason=f"rank {rank}", silent_seconds=silent, step=step, waits=waits, stopped=stopped,
        )  # fmt: skip

    found = hang(0, 7, True, 20.0)
    reports = [report(hang=found, behind=found), report(behind=hang(1, 7, False, 19.0)), report()]
    assert join_reports(reports, began=0.0, stop=None).outcome.hang.rank == 1
    reports.append(report(behind=hang(3, 6, True, 1.0)))
    assert join_reports(reports, began=0.0, stop=None).outcome.hang.rank == 3
    reports.append(report(behind=hang(2, 7, True, 1.0, stopped=True)))
    assert join_reports(reports, began=0.0, stop=None).outcome.hang.rank == 2
    assert join_reports([report(behind=found)], began=0.0, stop=None).outcome.hang is None, "nobody hung"


def test_order_is_above_what_happened_meanwhile():
    stop = StopRequest(exit_code=143, reason="asked to stop by SIGTERM", save=True)
    verdict = verdict_of([ended(0, 143, 1.0), ended(1, 143, 1.1)], stop=stop)
    assert (verdict.exit_code, verdict.retry) == (143, "free")
    verdict = verdict_of([ended(0, 143, 1.0), ended(1, 137, 1.1)], stop=stop)
    assert (verdict.exit_code, verdict.retry) == (143, "same")


def test_step_is_what_all_nodes_have_finished():
    assert join_reports([report(step=7), report(step=6)], began=0.0, stop=None).outcome.step == 6
    assert join_reports([report(step=7), report()], began=0.0, stop=None).outcome.step is None


def test_report_survives_the_wire_and_is_bounded():
    exits = tuple(died(rank, 137, float(rank)) for rank in range(64))
    outcome = GenerationResult(
        exits=exits, failed=exits[0], hang=None, stacks={str(rank): "x" * 10_000 for rank in range(64)}, stop=None,
        started={}, step=3, progressed=True,
    )  # fmt: skip
    found = report_of(outcome, generation=2, began=10.0, oom_kills=1, rank_reason="w" * 10_000, log=["l" * 10_000] * 50)
    wire = json.dumps(found.to_plain())
    assert NodeReport.from_plain(json.loads(wire)) == found
    assert found.exits[1].mono == -9.0
    assert len(wire) < 1 << 20
    with pytest.raises(IntegrityError, match="generation"):
        NodeReport.from_plain({"generation": "x"})
