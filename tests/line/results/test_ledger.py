"""A ledger's rows sum to what was allocated, whatever the gangs reported."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.line.gangs.attempts import GangShare
from gangline.line.results.ledger import merge_ledgers, with_drill_loss
from gangline.spec.measurements import LEDGER_CAUSES, Drill, Ledger
from gangline.spec.record import GangInfo

causes = st.sampled_from([*LEDGER_CAUSES, "a cause of tomorrow"])
seconds = st.dictionaries(causes, st.floats(0, 1e6) | st.just(math.nan), max_size=8)
shares = st.lists(st.builds(GangShare, st.floats(0, 1e6), seconds), max_size=6)


@given(shares=shares)
def test_rows_sum_to_the_allocation(shares):
    ledger = merge_ledgers("cpu", shares)
    assert math.fsum(ledger.seconds.values()) == pytest.approx(ledger.allocated_seconds, rel=1e-9, abs=1e-6)
    assert ledger.allocated_seconds == pytest.approx(sum(share.allocated for share in shares))
    assert ledger.seconds.keys() <= set(LEDGER_CAUSES)
    assert min(ledger.seconds.values(), default=0) >= 0


def test_what_no_cause_explains_is_other_and_unknown_causes_are_too():
    ledger = merge_ledgers("cpu", [GangShare(10.0, {"compute": 6.0, "magic": 1.0})])
    assert ledger.seconds == {"compute": 6.0, "other": 4.0}
    assert ledger.useful_share == 0.6


def test_where_no_rank_reported_a_step_the_useful_share_is_unknown():
    ledger = merge_ledgers("cpu", [GangShare(10.0, {"build": 1.0})])
    assert (ledger.useful_share, ledger.effective_time) == (None, None)


def test_merging_again_with_another_gang_keeps_the_first():
    first = merge_ledgers("cuda", [GangShare(10.0, {"compute": 6.0, "wait": 4.0})])
    both = merge_ledgers("cuda", [GangShare(first.allocated_seconds, first.seconds), GangShare(5.0, {"compute": 5.0})])
    assert both.resource == "gpu"
    assert both.seconds == {"compute": 11.0, "wait": 4.0}


GANG = GangInfo(launcher="local", name="g", uid="u", podset="p", generations=2)


def lost(*seconds: float) -> list[Drill]:
    return [Drill(name="kill-rank", row="T1", result="held", lost_seconds=each) for each in seconds]


def charged(rows: dict[str, float], *seconds: float, ranks: int = 2) -> Ledger:
    ledger = Ledger(resource="cpu", allocated_seconds=sum(rows.values()), seconds=rows)
    return with_drill_loss(ledger, lost(*seconds), GANG, ranks=ranks)


def test_what_a_drill_cost_all_ranks_is_its_row_where_ranks_account_for_no_steps():
    """As of a program with a loop of its own, whose time is `other`."""
    rows = {"start": 1.49, "restart": 3.44, "stop": 0.6, "other": 451.1}
    after = charged(rows, 104.553).seconds
    assert after["drill"] == pytest.approx(209.106)
    assert (after["start"], after["restart"], after["stop"]) == (1.49, 0.0, 0.6), "the first start is an ordinary one"
    assert after["other"] == pytest.approx(451.1 - (209.106 - 3.44))


def test_of_a_task_the_causes_of_failures_are_charged_before_its_steps():
    rows = {"start": 2.0, "build": 2.0, "compute": 90.0, "redone": 4.0, "restart": 2.0, "resume": 1.0}
    after = charged(rows, 5.0).seconds
    assert after == {
        "start": 2.0, "build": 1.0, "compute": 88.0, "redone": 0.0, "restart": 0.0, "resume": 0.0, "drill": 10.0
    }  # fmt: skip
    assert charged(rows).seconds == rows
    assert charged(rows, 1.0, 2.0).seconds["drill"] == pytest.approx(6.0)


@given(
    rows=st.dictionaries(st.sampled_from(LEDGER_CAUSES), st.floats(min_value=0, max_value=1e6), max_size=20),
    seconds=st.floats(min_value=0, max_value=1e7),
)
def test_charging_a_drill_keeps_the_sum_and_never_owes(rows, seconds):
    after = charged(rows, seconds, ranks=1).seconds
    assert math.isclose(sum(after.values()), sum(rows.values()), rel_tol=1e-9, abs_tol=1e-6)
    assert min(after.values(), default=0) >= 0
    assert after.get("start") == rows.get("start")
