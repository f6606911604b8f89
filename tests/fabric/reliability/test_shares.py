"""Shares of unlike replicas, against every split there is."""

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.fabric.reliability.shares import by_speed, deal_passes, even_shares, split_by_speed

SPEEDS = st.lists(st.floats(0.1, 10), min_size=1, max_size=8)


@given(speeds=st.lists(st.floats(0.1, 10), min_size=1, max_size=3), samples=st.integers(6, 14), least=st.integers(1, 2))
def test_no_split_is_done_sooner(speeds, samples, least):
    found = split_by_speed(samples, speeds, least=least)
    splits = (each for each in product(range(least, samples + 1), repeat=len(speeds)) if sum(each) == samples)
    fastest = min(max(share / speed for share, speed in zip(each, speeds, strict=True)) for each in splits)
    assert found.seconds == pytest.approx(fastest)
    assert found.bound_seconds <= found.seconds * (1 + 1e-9)
    assert found.seconds <= found.even_seconds * (1 + 1e-9)


@given(speeds=SPEEDS, samples=st.integers(32, 512), least=st.integers(1, 4))
def test_no_single_sample_could_be_moved_for_the_better(speeds, samples, least):
    shares = by_speed(speeds, samples, least=least)
    assert sum(shares) == samples
    assert min(shares) >= least
    done = [share / speed for share, speed in zip(shares, speeds, strict=True)]
    for giver, taker in permutations(range(len(speeds)), 2):
        assert shares[giver] == least or (shares[taker] + 1) / speeds[taker] >= done[giver] * (1 - 1e-9)


@given(samples=st.integers(8, 512), replicas=st.integers(1, 8), speed=st.floats(0.1, 10))
def test_equal_replicas_gain_nothing(samples, replicas, speed):
    found = split_by_speed(samples, [speed] * replicas)
    assert sorted(found.shares) == sorted(even_shares(samples, replicas))
    assert not found.is_worth_it


def test_remainders_of_proportional_shares_are_not_the_fastest_split():
    assert by_speed([0.5, 1, 0.6, 0.8, 1, 0.9], 12, least=1) == (1, 3, 1, 2, 3, 2)


def test_a_step_of_millions_of_samples_is_split_at_once():
    assert by_speed([2.0, 1.0], 3_000_000_000, least=1) == (2_000_000_000, 1_000_000_000)


@settings(max_examples=200)
@given(
    replicas=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    more=st.integers(0, 20),
    costs=st.tuples(*[st.tuples(st.floats(0.1, 10.0), st.floats(0.0, 30.0))] * 2),
)
def test_no_deal_of_whole_passes_to_two_kinds_is_done_sooner(replicas, more, costs):
    passes = sum(replicas) + more
    seconds = tuple(lambda count, each=each: each[1] + count * each[0] for each in costs)

    def last_done(taken):
        return max(each(-(-own // count)) for each, own, count in zip(seconds, taken, replicas, strict=True))

    found = deal_passes(passes, replicas, seconds)
    assert sum(found) == passes
    assert all(own >= count for own, count in zip(found, replicas, strict=True))
    every = ((first, passes - first) for first in range(replicas[0], passes - replicas[1] + 1))
    assert last_done(found) == min(map(last_done, every))
