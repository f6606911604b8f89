"""Waits of a forward pass for updates, against a pass that is followed block by block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.forecast import exposed_seconds

times = st.floats(min_value=0, max_value=10)


def followed(seconds, computed):
    """Bucket k travels after those before it; computing of block k follows its arrival."""
    clock = arrival = waited = 0.0
    for travel, work in zip(seconds, computed, strict=True):
        arrival += travel
        waited += max(0.0, arrival - clock)
        clock = max(clock, arrival) + work
    return waited


@given(pairs=st.lists(st.tuples(times, times), min_size=1, max_size=9))
def test_waits_are_those_of_a_pass_that_is_followed(pairs):
    seconds, computed = zip(*pairs, strict=True)
    whole = sum(computed) or 1.0
    before = [sum(computed[:at]) / whole for at in range(len(computed))]
    assert exposed_seconds(seconds, before, sum(computed)) == pytest.approx(followed(seconds, computed), abs=1e-9)


def test_the_first_bucket_is_never_hidden_and_nothing_else_behind_enough_computing():
    assert exposed_seconds([1.0] * 4, [0, 0.25, 0.5, 0.75], 4.0) == 1.0
    assert exposed_seconds([1.0] * 4, [0, 0.25, 0.5, 0.75], 0.0) == 4.0
    assert exposed_seconds([], [], 4.0) == 0.0
