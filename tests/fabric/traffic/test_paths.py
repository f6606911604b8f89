"""Paths against every outcome in rationals, the figures of published tables, and flows that are hashed one by one."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import factorial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.fabric.traffic import paths
from gangline.fabric.traffic.paths import (
    hashed_load,
    loads_of_policies,
    path_environment,
    path_load,
    probability_of_most,
)


def enumerated(flows, uplinks, connections):
    """(E[max], efficiency) over every way in which the connections can fall."""
    outcomes = list(product(range(uplinks), repeat=flows * connections))
    loads = [Fraction(max(Counter(each).values()), connections) for each in outcomes]
    busiest = sum(loads) / len(outcomes)
    return busiest, sum(1 / max(Fraction(1), load) for load in loads) / len(outcomes)


@pytest.mark.parametrize(
    ("flows", "uplinks", "connections"),
    [(2, 2, 1), (2, 2, 4), (3, 2, 2), (3, 4, 2), (4, 4, 1), (5, 3, 1), (6, 4, 1), (1, 5, 4), (5, 5, 1)],
)
def test_a_hashed_load_is_that_of_all_outcomes(flows, uplinks, connections):
    busiest, efficiency = enumerated(flows, uplinks, connections)
    found = hashed_load(((flows, 1),), uplinks=uplinks, connections=connections)
    assert found.busiest_flows == pytest.approx(float(busiest), rel=1e-9)
    assert found.efficiency == pytest.approx(float(efficiency), rel=1e-9)


def exact_probability(balls, bins, most):
    """By the power of a polynomial with rational terms, multiplied out."""
    base = [Fraction(1, factorial(i)) for i in range(most + 1)]
    power = [Fraction(1)]
    for _ in range(bins):
        power = [
            sum(power[i] * base[n - i] for i in range(max(0, n - most), min(len(power), n + 1)))
            for n in range(min(balls, len(power) + most - 1) + 1)
        ]
    return float(power[balls] * factorial(balls) / Fraction(bins) ** balls) if balls < len(power) else 0.0


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 24), st.integers(1, 8), st.integers(1, 24))
def test_probability_is_that_of_rational_arithmetic(balls, bins, most):
    assert probability_of_most(balls, bins=bins, most=most) == pytest.approx(
        exact_probability(balls, bins, most), rel=1e-9, abs=1e-15
    )


def test_nothing_cancels_where_a_recurrence_does():
    """8 bins, 128 balls: the power-of-a-series recurrence gives 5e6 for 0.737 here."""
    assert hashed_load(((8, 1),), uplinks=8, connections=16).efficiency == pytest.approx(0.7373, abs=5e-5)
    assert probability_of_most(128, bins=8, most=20) == pytest.approx(exact_probability(128, 8, 20), rel=1e-9)


@pytest.mark.parametrize(
    ("links", "busiest", "efficiencies"),
    [
        (2, 1.5000, (0.7500, 0.7708, 0.8089, 0.8491, 0.8847, 0.9365)),
        (8, 2.5972, (0.4100, 0.4975, 0.5831, 0.6646, 0.7373, 0.8489)),
        (64, 3.9577, (0.2620, 0.3431, 0.4335, 0.5268, 0.6167, 0.7680)),
    ],
)
def test_as_many_flows_as_links_to_four_digits(links, busiest, efficiencies):
    assert hashed_load(((links, 1),), uplinks=links).busiest_flows == pytest.approx(busiest, abs=5e-5)
    found = [hashed_load(((links, 1),), uplinks=links, connections=q).efficiency for q in (1, 2, 4, 8, 16, 64)]
    assert found == pytest.approx(efficiencies, abs=5e-5)


def test_single_link_figures_of_64_flows():
    shared = 1 - (63 / 64) ** 63
    idle = (63 / 64) ** 64
    assert [100 * shared, 100 * idle] == pytest.approx([62.9, 36.5], abs=0.05)
    assert hashed_load(((64, 1),), uplinks=64, connections=128).efficiency == pytest.approx(0.825, abs=5e-4)
    assert 20 * hashed_load(((64, 1),), uplinks=64).efficiency == pytest.approx(5.2, abs=0.05)


@pytest.mark.parametrize(
    ("flows", "busiest", "efficiencies"),
    [(62, 6.04, (0.167, 0.318, 0.510, 0.695)), (64, 6.14, (0.165, 0.312, 0.498, 0.677))],
)
def test_rail_of_32_leaves(flows, busiest, efficiencies):
    assert path_load("hash", [flows] * 32, uplinks=64).busiest_flows == pytest.approx(busiest, abs=5e-3)
    found = [path_load("hash", [flows] * 32, uplinks=64, connections=q).efficiency for q in (1, 4, 16, 64)]
    assert found == pytest.approx(efficiencies, abs=5e-4)


def simulated_rail(per_leaf, *, leaves, uplinks, connections, trials, seed, targets=None):
    """Mean efficiency: every connection hashed to an uplink, and at its spine to one of two links down.

    Flows of a leaf go round `targets` other leaves; None: all of them.
    """
    random, total = Random(seed), 0.0
    for _ in range(trials):
        up, down = Counter(), Counter()
        for leaf in range(leaves):
            for flow in range(per_leaf):
                target = (leaf + 1 + flow % (targets or leaves - 1)) % leaves
                for _ in range(connections):
                    link = random.randrange(uplinks)
                    up[leaf, link] += 1
                    down[target, link // 2, random.randrange(2)] += 1
        total += 1 / max(1.0, max(*up.values(), *down.values()) / connections)
    return total / trials


@pytest.mark.parametrize(("per_leaf", "connections"), [(62, 1), (32, 1), (32, 4)])
def test_rail_form_is_near_a_simulation_from_half_the_links_on(per_leaf, connections):
    simulated = simulated_rail(per_leaf, leaves=8, uplinks=64, connections=connections, trials=120, seed=1)
    found = path_load("hash", [per_leaf] * 8, uplinks=64, connections=connections)
    assert found.efficiency == pytest.approx(simulated, abs=0.02)


def test_two_flows_to_the_same_leaf_are_where_independence_errs():
    """Flows that share a link up share their spine: the closed form says 0.682 for a simulated 0.735."""
    assert path_load("hash", [2] * 32, uplinks=64).efficiency == pytest.approx(0.682, abs=1e-3)
    simulated = simulated_rail(2, leaves=32, uplinks=64, connections=1, trials=1000, seed=2, targets=1)
    assert simulated == pytest.approx(0.735, abs=4 * 0.25 / 1000**0.5)


@pytest.mark.parametrize(
    ("uplinks", "leaves", "connections", "error"),
    [(8, 1, 64, 5e-5), (8, 32, 64, 4e-4), (16, 32, 32, 2e-4), (32, 32, 8, 2e-5), (64, 32, 4, 1e-5)],
)
def test_the_normal_form_agrees_with_the_exact_one(monkeypatch, uplinks, leaves, connections, error):
    """At the sizes from which it is used on; the distance shrinks with the balls and with the bins."""

    def efficiency(most_exact):
        monkeypatch.setattr(paths, "MOST_EXACT", dict.fromkeys((True, False), most_exact))
        hashed_load.cache_clear()
        return path_load("hash", [uplinks] * leaves, uplinks=uplinks, connections=connections).efficiency

    try:
        assert efficiency(1) == pytest.approx(efficiency(10_000), abs=error)
    finally:
        hashed_load.cache_clear()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(1, 20))
def test_more_connections_help_and_more_flows_do_not(flows, uplinks):
    once, twice, four = (hashed_load(((flows, 1),), uplinks=uplinks, connections=q).efficiency for q in (1, 2, 4))
    assert once <= twice + 1e-9 <= four + 2e-9 <= 1 + 3e-9
    assert hashed_load(((flows + 1, 1),), uplinks=uplinks).efficiency <= once + 1e-9


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 12))
def test_policies_are_ordered(flows, uplinks):
    hashed, pinned, spray = (path_load(policy, flows, uplinks=uplinks) for policy in ("hash", "pinned", "spray"))
    assert hashed.efficiency <= pinned.efficiency + 1e-9 <= spray.efficiency + 2e-9
    if max(flows) <= uplinks:
        assert spray.efficiency == 1.0


def test_a_policy_that_is_not_known_shows_the_worst_and_the_best():
    assert list(loads_of_policies("unknown", [4], uplinks=4)) == ["hash", "spray"]
    assert list(loads_of_policies("pinned", [4], uplinks=4)) == ["pinned"]
    assert path_load("unknown", [4], uplinks=4) == path_load("hash", [4], uplinks=4)


def test_one_flow_a_leaf_never_shares_a_link():
    assert path_load("hash", [1] * 32, uplinks=64).efficiency == 1.0
    assert path_load("hash", [0, 0], uplinks=64).busiest_flows == 0.0


def test_variables_of_nccl_follow_a_declared_policy_only():
    assert path_environment("unknown", connections=4) == {}
    assert path_environment("hash", connections=1) == {"NCCL_CROSS_NIC": "0"}
    assert path_environment("hash", connections=4)["NCCL_IB_QPS_PER_CONNECTION"] == "4"
    assert path_environment("spray", connections=1)["NCCL_IB_ADAPTIVE_ROUTING"] == "1"
