"""Micro-groups: known figures, every matrix once, a ceiling that never slows a plan down, events as they happen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.event_pipeline import makespan
from tools import optimizer_tables as tables

from gangline.errors import ConfigError
from gangline.optim.plan.groups import (
    GroupTimes,
    HostExchangeRate,
    HostItem,
    budgets,
    group_times,
    grown,
    plan_groups,
    run_pipeline,
    slotted,
)
from gangline.units import Bytes, Seconds

RATE = HostExchangeRate(bytes_per_second=10.0, latency_seconds=0.1)


def items_of(pairs):
    return [
        HostItem(key=(f"m{at:03}", ""), seconds=Seconds(seconds), hosted=Bytes(size))
        for at, (seconds, size) in enumerate(pairs)
    ]


pairs = st.lists(st.tuples(st.floats(0.01, 9), st.integers(1, 40)), min_size=1, max_size=24)


@pytest.mark.parametrize(
    ("size", "ranks", "count", "largest", "ideal", "cells"),
    [
        ("32B", 1, 448, 524, 766.1, "30/1.00/769.5 15/1.00/773.0 8/1.00/776.5 4/1.00/790.2"),
        ("32B", 4, 112, 524, 191.5, "8/1.00/194.1 4/1.00/197.6 2/1.00/204.6 1/1.00/217.6"),
        ("8B", 4, 63, 201, 37.3, "5/1.07/38.4 3/1.07/39.1 2/1.07/41.7 1/1.01/43.5"),
    ],
)
def test_grown_groups_of_the_heaviest_owner(size, ranks, count, largest, ideal, cells):
    found = tables.group_row(size, ranks)
    assert (found[0], round(found[1]), round(found[2], 1)) == (count, largest, ideal)
    assert [f"{groups}/{over:.2f}/{ms:.1f}" for groups, over, ms in found[3]] == cells.split()


@pytest.mark.parametrize(("size", "ranks", "most"), [("32B", 1, 1.014), ("32B", 4, 1.014), ("8B", 4, 1.031)])
@pytest.mark.parametrize("factor", [1, 2, 4])
def test_the_best_candidate_is_near_the_ideal_at_every_ceiling(size, ranks, most, factor):
    ideal = tables.group_row(size, ranks)[2]
    assert round(tables.best_of_ladder(size, ranks, factor) / ideal, 3) <= most


@given(pairs=pairs, hosts=st.integers(1, 4))
@settings(max_examples=50)
def test_time_never_rises_with_the_ceiling(pairs, hosts):
    items = items_of(pairs)
    totals = [
        plan_groups(items, hosts, c_max=Bytes(ceiling), rate=RATE).times.total_seconds
        for ceiling in (1, 20, 40, 80, 200)
    ]
    assert totals == sorted(totals, reverse=True)


@given(pairs=pairs, hosts=st.integers(1, 4), c_max=st.integers(1, 200))
@settings(max_examples=50)
def test_every_matrix_has_one_host_and_no_slot_exceeds_its_budget(pairs, hosts, c_max):
    items = items_of(pairs)
    largest = max(size for _, size in pairs)
    for budget in budgets(items, Bytes(c_max)):
        assert budget.value <= max(c_max, largest)
        for groups in (grown(items, hosts, budget), slotted(items, hosts, budget)):
            assert sorted(at for group in groups for host in group for at in host) == list(range(len(items)))
            sizes = [sum(items[at].hosted.value for at in host) for group in groups for host in group]
            assert max(sizes) <= budget.value
            assert all(any(group) for group in groups)


def test_an_item_above_the_ceiling_has_a_slot_of_its_own():
    items = items_of([(1.0, 100), (1.0, 100), (0.1, 1)])
    plan = plan_groups(items, 2, c_max=Bytes(10), rate=RATE)
    assert {len(host) for group in plan.groups for host in group if {0, 1} & set(host)} == {1}
    with pytest.raises(ConfigError, match="m000 has 100 B on its host, more than the budget of 10 B"):
        grown(items, 2, Bytes(10))


def test_equally_fast_candidates_go_to_fewer_collectives():
    items = items_of([(0.0, 1)] * 4)
    free = HostExchangeRate(bytes_per_second=float("inf"), latency_seconds=0.0)
    assert plan_groups(items, 2, c_max=Bytes(8), rate=free).calls == 2


def test_no_items_are_no_groups():
    plan = plan_groups([], 2, c_max=Bytes(1), rate=RATE)
    assert (plan.groups, plan.calls, plan.times.total_seconds) == ((), 0, 0.0)


times = st.floats(0, 5)


@given(st.integers(1, 4).flatmap(lambda hosts: st.lists(
    st.tuples(times, st.lists(times, min_size=hosts, max_size=hosts), times), min_size=1, max_size=8
)))  # fmt: skip
def test_the_pipeline_is_its_events(groups):
    found = run_pipeline([
        GroupTimes(gather_seconds=gather, compute_seconds=tuple(compute), scatter_seconds=scatter)
        for gather, compute, scatter in groups
    ])  # fmt: skip
    assert found.total_seconds == pytest.approx(makespan(groups))
    assert found.exchange_seconds == pytest.approx(sum(gather + scatter for gather, _, scatter in groups))


def test_the_exchange_of_a_group_is_that_of_its_fullest_host():
    items = items_of([(1.0, 30), (2.0, 10), (3.0, 10)])
    (found,) = group_times(items, [((0,), (1, 2))], RATE)
    assert (found.gather_seconds, found.compute_seconds) == (pytest.approx(3.1), (1.0, 5.0))
