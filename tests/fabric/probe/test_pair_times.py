"""Tables of times between servers: rows, columns, cells and groups that are slow, and tables that are only noisy."""

import random
from itertools import permutations

import pytest

from gangline.fabric.probe.pair_times import find_slow_pairs

GROUPS = {f"s{number}": f"g{number // 4}" for number in range(12)}


def table(seed, *, slower=lambda source, target: 1.0, noise=0.05, servers=GROUPS):
    """Twice as long across groups as inside, with noise."""
    draw = random.Random(seed)
    return {
        (one, other): (2 if GROUPS[one] != GROUPS[other] else 1)
        * 1e-4
        * slower(one, other)
        * draw.lognormvariate(0, noise)
        for one, other in permutations(servers, 2)
    }


def found(seconds):
    return [(each.kind, each.names) for each in find_slow_pairs(seconds, groups=GROUPS)]


@pytest.mark.parametrize("seed", range(5))
def test_sender_receiver_and_path_are_distinguished(seed):
    assert found(table(seed, slower=lambda one, _: 1.5 if one == "s3" else 1)) == [("slow_sender", ("s3",))]
    assert found(table(seed, slower=lambda _, other: 1.5 if other == "s7" else 1)) == [("slow_receiver", ("s7",))]
    path = ("s1", "s9")
    assert found(table(seed, slower=lambda *pair: 1.8 if pair == path else 1)) == [("slow_path", path)]


@pytest.mark.parametrize("seed", range(5))
def test_leaf_is_named_instead_of_each_of_its_servers(seed):
    crosses = lambda *pair: 1.6 if "g1" in map(GROUPS.get, pair) else 1  # noqa: E731
    assert found(table(seed, slower=crosses)) == [("slow_leaf", ("g1",))]


def test_two_culprits_at_once():
    def slower(one, other):
        return (1.5 if one == "s0" else 1) * (1.5 if other == "s10" else 1)

    assert found(table(1, slower=slower)) == [("slow_sender", ("s0",)), ("slow_receiver", ("s10",))]


def test_noise_names_nothing():
    assert [found(table(seed, noise=0.1)) for seed in range(200)] == [[]] * 200


def test_slow_receiver_of_four_servers_in_a_noisy_table_is_the_only_one_named():
    """Measured between namespaces of a busy machine, one of them behind a link of 200 Mbit/s: MB/s."""
    speeds = {
        ("3", "2"): 24, ("1", "2"): 24, ("4", "2"): 24, ("1", "4"): 247, ("2", "3"): 251, ("3", "1"): 345,
        ("2", "4"): 366, ("3", "4"): 614, ("4", "1"): 720, ("1", "3"): 751, ("4", "3"): 910, ("2", "1"): 954,
    }  # fmt: skip
    (each,) = find_slow_pairs({pair: 1 / speed for pair, speed in speeds.items()}, groups={})
    assert (each.kind, each.names) == ("slow_receiver", ("2",))


def test_ratio_is_to_the_usual_time():
    (each,) = find_slow_pairs(table(2, slower=lambda one, _: 1.5 if one == "s3" else 1), groups=GROUPS)
    assert each.ratio == pytest.approx(1.5, rel=0.1)


def test_two_servers_cannot_be_compared_and_missing_pairs_do_not_matter():
    assert find_slow_pairs({("a", "b"): 1.0, ("b", "a"): 9.0}, groups={}) == ()
    seconds = table(3, slower=lambda one, _: 1.5 if one == "s3" else 1)
    assert found({pair: each for pair, each in seconds.items() if pair[1] != "s5"}) == [("slow_sender", ("s3",))]
