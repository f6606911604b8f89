"""The search over sides, against an exhaustive reading of every history."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.bisect.decisions import candidates, max_decisions, next_index, steps_left, transient_regressions
from gangline.spec.bisect import interval

truths = st.lists(st.sampled_from(["good", "bad", "skipped"]), max_size=40).map(lambda inner: ["good", *inner, "bad"])


def search(truth):
    """Ask until nothing is left to ask; the sides that are known then, and how often was asked."""
    sides = ["good", *["unknown"] * (len(truth) - 2), "bad"]
    asked = 0
    while (place := next_index(sides)) is not None:
        assert sides[place] == "unknown"
        sides[place] = truth[place]
        asked += 1
    return sides, asked


@given(truth=truths)
def test_answer_is_a_true_turn_from_good_to_bad(truth):
    sides, _ = search(truth)
    found = interval(sides)
    assert (truth[found.good], truth[found.bad]) == ("good", "bad")
    assert all(truth[place] == "skipped" for place in range(found.good + 1, found.bad))


@given(first_bad=st.integers(1, 60), length=st.integers(2, 61))
def test_of_a_history_that_turns_once_the_first_bad_commit_is_found_in_logarithmic_time(first_bad, length):
    first_bad = min(first_bad, length - 1)
    sides, asked = search(["good"] * first_bad + ["bad"] * (length - first_bad))
    assert candidates(sides) == (first_bad,)
    assert asked <= ceil(log2(length - 1) if length > 2 else 0)
    assert asked <= max_decisions(length)


@given(truth=truths)
def test_each_answer_keeps_what_is_left_within_the_promise(truth):
    sides = ["good", *["unknown"] * (len(truth) - 2), "bad"]
    clean = ["bad" if side == "skipped" else side for side in truth]
    left = steps_left(sides)
    while (place := next_index(sides)) is not None:
        sides[place] = clean[place]
        assert steps_left(sides) < left
        left = steps_left(sides)
    assert left == 0


def test_what_was_bad_and_became_good_again_is_reported():
    sides = ["good", "bad", "good", "unknown", "bad"]
    assert transient_regressions(sides) == (1,)
    assert next_index(sides) == 3


@pytest.mark.parametrize(("sides", "left"), [(["good", "bad"], 1), (["good", "skipped", "skipped", "bad"], 3)])
def test_nothing_is_asked_where_nothing_can_be(sides, left):
    assert next_index(sides) is None
    assert len(candidates(sides)) == left
