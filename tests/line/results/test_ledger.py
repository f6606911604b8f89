"""A ledger's rows sum to what was allocated, whatever the gangs reported."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.line.gangs.attempts import GangShare
from gangline.line.results.ledger import merge_ledgers
from gangline.spec.measurements import LEDGER_CAUSES

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
