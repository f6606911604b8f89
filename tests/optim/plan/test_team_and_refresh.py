"""Teams where single owners cannot be balanced, and refreshes in phases: their figures and what they promise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.qwen3 import QWEN3

from gangline.errors import ConfigError
from gangline.optim.plan.build import build_plan, stagger
from gangline.optim.plan.costs import MuonSpec, ShampooSpec, SoapSpec, cost
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.owners import WorkItem, loads_of, owner_map
from gangline.optim.plan.team import team_size, teams
from gangline.units import Flops


@pytest.mark.parametrize(("size", "ratio"), [("8B", 1.51), ("32B", 1.17), ("1.7B", 1.27)])
def test_teams_lower_what_single_owners_cannot(size, ratio):
    matrices = QWEN3[size].matrices("fused")
    assert (
        round(teams([WorkItem(key=each.key, cost=cost(MuonSpec(), each.shape)) for each in matrices], 256).ratio, 2)
        == ratio
    )


def test_no_team_where_owners_are_balanced_enough():
    found = teams([WorkItem(key=(f"{at}", ""), cost=Flops(10)) for at in range(8)], 4)
    assert ({len(each) for each in found.members}, found.ratio) == ({1}, 1.0)
    slightly_uneven = teams([WorkItem(key=(f"{at}", ""), cost=Flops(each)) for at, each in enumerate([106, 100])], 2)
    assert {len(each) for each in slightly_uneven.members} == {1}
    assert [team_size(each, 10, 8) for each in (10, 11, 17, 18, 10_000)] == [1, 2, 2, 4, 8]


def test_matrices_that_are_cut_over_hosts_have_no_teams_and_the_reason_says_what_helps():
    matrices, options = QWEN3["1.7B"].matrices("fused"), PlanOptions(team="auto")
    with pytest.raises(ConfigError, match=r"cut over 8 hosts, .*; use team = 'off', and for fused layers a route with"):
        build_plan(matrices, MuonSpec(), ranks=32, hosts=8, options=options)
    assert any(each.team for each in build_plan(matrices, MuonSpec(), ranks=256, options=options).matrices)


@given(costs=st.lists(st.integers(1, 500), min_size=1, max_size=20), ranks=st.integers(1, 16))
@settings(max_examples=60)
def test_members_of_a_team_are_distinct_ranks(costs, ranks):
    found = teams([WorkItem(key=(f"{at:02}", ""), cost=Flops(each)) for at, each in enumerate(costs)], ranks)
    for members, share, whole in zip(found.members, found.shares, costs, strict=True):
        assert len(set(members)) == len(members)
        assert share * len(members) == pytest.approx(whole if len(members) == 1 else 1.15 * whole)
    held = [sum(s for s, m in zip(found.shares, found.members, strict=True) if rank in m) for rank in range(ranks)]
    assert list(found.loads) == pytest.approx(held)


def refresh_case(rule, size):
    matrices = QWEN3[size].matrices("split")
    items = [WorkItem(key=each.key, cost=cost(rule, each.shape)) for each in matrices]
    refreshes = [WorkItem(key=each.key, cost=rule.refresh_cost(each.shape)) for each in matrices]
    steps = [rule.step_cost(each.shape).value for each in matrices]
    return refreshes, steps, owner_map(items, 32).owners, sum(each.cost.value for each in items) / 32


@pytest.mark.parametrize(
    ("rule", "size", "figures"),
    [
        (SoapSpec(), "8B", "1.03/1.08"), (SoapSpec(), "32B", "1.00/1.02"), (ShampooSpec(), "8B", "1.12/2.05"),
    ],
)  # fmt: skip
def test_heavy_phases_of_all_owners_coincide(rule, size, figures):
    refreshes, steps, owners, ideal = refresh_case(rule, size)
    phases = stagger(refreshes, owners, ranks=32, every=10)
    slowest = [
        max(loads_of(owners, [
            step + each.cost.value * (phase == due)
            for step, each, due in zip(steps, refreshes, phases, strict=True)
        ], 32))
        for phase in range(10)
    ]  # fmt: skip
    assert f"{sum(slowest) / 10 / ideal:.2f}/{max(slowest) / ideal:.2f}" == figures


@given(costs=st.lists(st.integers(1, 50), min_size=1, max_size=30), every=st.integers(1, 6))
def test_refreshes_of_a_period_are_all_of_them(costs, every):
    items = [WorkItem(key=(f"{at:02}", ""), cost=Flops(each)) for at, each in enumerate(costs)]
    owners = [at % 3 for at in range(len(costs))]
    phases = stagger(items, owners, ranks=3, every=every)
    assert set(phases) <= set(range(every))
    for rank in range(3):
        mine = [at for at, owner in enumerate(owners) if owner == rank]
        loads = loads_of([phases[at] for at in mine], [costs[at] for at in mine], every)
        assert loads == sorted(loads, reverse=True)
