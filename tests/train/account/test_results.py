"""Losses of a result: few enough to carry, first and last kept."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.train.account.results import thin


@given(count=st.integers(0, 300), most=st.integers(2, 100))
def test_thinning_keeps_the_ends_and_the_order(count, most):
    losses = [(step, 1.0 / step) for step in range(1, count + 1)]
    kept = thin(losses, most)
    assert len(kept) == min(count, most)
    assert list(kept) == sorted(set(kept))
    assert set(kept) <= set(losses)
    if losses:
        assert (kept[0], kept[-1]) == (losses[0], losses[-1])
