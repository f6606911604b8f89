"""All servers in pairs: the schedule, and who is slow twice."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import UsageError
from gangline.fabric.probe.preflight import preflight, tournament


@given(num=st.integers(2, 17))
def test_each_server_meets_each_other_once_and_one_at_a_time(num):
    servers = [f"s{each}" for each in range(num)]
    rounds = tournament(servers)
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert set(met.values()) == {1}
    assert len(met) == num * (num - 1) // 2
    assert len(rounds) == (num if num % 2 else num - 1)
    for pairs in rounds:
        names = [name for pair in pairs for name in pair]
        assert len(names) == len(set(names)) >= num - 1


class Network:
    """Servers of which some are slow; counts the measurements of each."""

    def __init__(self, slow, *, dead=()):
        self.slow, self.dead, self.measured = slow, dead, Counter()

    def __call__(self, pairs):
        names = [name for pair in pairs for name in pair]
        assert len(set(names)) == len(names), "pairs at the same time are disjoint"
        self.measured.update(names)
        return {pair: self._speed(pair) for pair in pairs}

    def _speed(self, pair):
        if set(pair) & set(self.dead):
            return 0.0
        return 1e9 * (0.5 if set(pair) & set(self.slow) else 1.0)


@given(num=st.integers(4, 40), seed=st.integers(0, 99))
def test_slow_servers_are_named_and_their_partners_are_not(num, seed):
    servers = [f"s{each}" for each in range(num)]
    slow = random.Random(seed).sample(servers, num // 8)
    network = Network(slow)
    result = preflight(servers, network)
    assert (set(result.culprits), result.unsure) == (set(slow), ())
    assert max(network.measured.values()) <= 1 + 2 * len(slow) + 1


def test_dead_server_is_a_culprit_and_an_odd_one_is_measured_too():
    servers = [f"s{each}" for each in range(7)]
    network = Network([], dead=["s4"])
    assert preflight(servers, network).culprits == ("s4",)
    assert set(network.measured) == set(servers)


def test_nothing_is_said_of_suspects_without_a_fast_partner():
    servers = [f"s{each}" for each in range(4)]
    speeds = {frozenset(("s0", "s3")): 1e9, frozenset(("s1", "s2")): 1e9}
    result = preflight(servers, lambda pairs: {pair: speeds[frozenset(pair)] for pair in pairs})
    assert (result.culprits, result.unsure) == ((), ())
    result = preflight(servers, lambda pairs: dict.fromkeys(pairs, 0.0))
    assert (result.culprits, result.unsure) == ((), tuple(servers))


@pytest.mark.parametrize("servers", [["a", "b", "c"], ["a", "b", "c", "a"]])
def test_few_or_repeated_servers_are_refused(servers):
    with pytest.raises(UsageError, match="at least 4 different servers"):
        preflight(servers, Network([]))
