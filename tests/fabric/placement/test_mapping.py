"""Mapping of stages and replicas to groups: figures of the reference case, and optima of cases small enough to know."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fabric.placement.edges import edges_of_175_billion

from gangline.errors import ConfigError
from gangline.fabric.placement.mapping import EdgeBytes, bytes_between, crossings, least_data_crossings, server_order
from gangline.fabric.placement.tiles import map_cells

GB = 1e9


def tiles(height, *, replicas, stages):
    """Groups of 64 servers as blocks of `height` stages, laid back and forth."""
    width = 64 // height
    return [
        [at // height * (replicas // width) + (replicas - 1 - place if at // height % 2 else place) // width
         for place in range(replicas)]
        for at in range(stages)
    ]  # fmt: skip


THIRTY_TWO_GROUPS = {f"g{at:02}": 64 for at in range(32)}


def test_bytes_of_the_edges():
    edges = edges_of_175_billion(128, 16)
    assert [edges.data / GB, edges.stage / GB] == pytest.approx([5.426, 0.151], abs=5e-4)


@pytest.mark.parametrize(
    ("height", "data", "stage", "gigabytes"),
    [(1, 32, 1920, 463.5), (2, 64, 896, 482.6), (4, 128, 384, 752.5), (16, 512, 0, 2778)],
)
def test_tiles_of_32_groups(height, data, stage, gigabytes):
    edges = edges_of_175_billion(128, 16)
    rows = tiles(height, replicas=128, stages=16)
    assert crossings(rows) == (data, stage, 0)
    assert bytes_between(rows, edges) == data * edges.data + stage * edges.stage
    assert bytes_between(rows, edges) / GB == pytest.approx(gigabytes, rel=2e-4)


@pytest.mark.parametrize(("replicas", "stages", "height", "gigabytes"), [(128, 16, 1, 463.5), (64, 32, 2, 462.2)])
def test_the_best_tile_is_found(replicas, stages, height, gigabytes):
    edges = edges_of_175_billion(replicas, stages)
    found = map_cells(THIRTY_TWO_GROUPS, replicas=replicas, stages=stages, edges=edges, swaps=500)
    tiled = bytes_between(tiles(height, replicas=replicas, stages=stages), edges)
    assert bytes_between(found, edges) == tiled == pytest.approx(gigabytes * GB, abs=0.05 * GB)
    assert least_data_crossings([64] * 32, replicas) == (32 if replicas == 128 else 0)


def test_whole_stages_in_groups_cross_no_ring():
    found = map_cells({"a": 64, "b": 64, "c": 128}, replicas=64, stages=4, edges=EdgeBytes(data=100.0, stage=0.1))
    assert crossings(found) == (0, 128, 0)
    assert least_data_crossings([64, 64, 128], 64) == 0


def test_groups_that_close_a_stage_together_are_found():
    """In any order of sizes alone 5 and 3 do not meet: three rings of two groups each are possible, and no fewer."""
    shares = {"a": 5, "b": 6, "c": 2, "d": 4, "e": 3, "f": 4}
    found = map_cells(shares, replicas=8, stages=3, edges=EdgeBytes(data=1.0, stage=0.0), swaps=0)
    assert crossings(found)[0] == least_data_crossings(list(shares.values()), 8) == 6


def costs(sizes, replicas, stages, edges):
    """Bytes of every mapping, as the specification counts them: the groups that a stage touches, none if it is one."""
    cells = [group for group, size in enumerate(sizes) for _ in range(size)]
    for order in set(permutations(cells)):
        rows = [order[start : start + replicas] for start in range(0, len(order), replicas)]
        touched = sum(len(set(row)) for row in rows if len(set(row)) > 1)
        crossing = sum(a != b for row, below in pairwise(rows) for a, b in zip(row, below, strict=True))
        yield touched * edges.data + crossing * edges.stage


@pytest.mark.parametrize("ratio", [0.1, 0.4, 1.0, 2.5, 10.0])
@pytest.mark.parametrize(
    ("sizes", "replicas", "stages"),
    [((3, 5), 4, 2), ((2, 3, 3), 2, 4), ((1, 2, 5), 4, 2), ((4, 4), 2, 4), ((3, 3, 3), 3, 3), ((2, 7), 3, 3)],
)
def test_every_mapping_costs_as_much_or_nearly(sizes, replicas, stages, ratio):
    edges = EdgeBytes(data=ratio, stage=1.0)
    best = min(costs(sizes, replicas, stages, edges))
    found = map_cells({str(at): size for at, size in enumerate(sizes)}, replicas=replicas, stages=stages, edges=edges)
    assert least_data_crossings(sizes, replicas) * edges.data <= best + 1e-9
    assert best - 1e-9 <= bytes_between(found, edges) <= 1.25 * best + 1e-9


@st.composite
def cases(draw):
    replicas, stages = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    left, shares = replicas * stages, {}
    while left:
        shares[f"g{len(shares)}"] = draw(st.integers(1, left))
        left -= shares[f"g{len(shares) - 1}"]
    edges = EdgeBytes(data=draw(st.floats(0.0, 10.0)), stage=draw(st.floats(0.0, 10.0)))
    return shares, replicas, stages, edges


@settings(deadline=None, max_examples=60)
@given(cases())
def test_a_mapping_uses_each_share_and_keeps_its_bounds(case):
    shares, replicas, stages, edges = case
    found = map_cells(shares, replicas=replicas, stages=stages, edges=edges, swaps=200)
    cells, least = [group for row in found for group in row], least_data_crossings(list(shares.values()), replicas)
    assert {group: cells.count(group) for group in shares} == shares
    assert least * edges.data <= bytes_between(found, edges) + 1e-9
    data, stage, _ = crossings(found)
    assert least <= data
    assert bytes_between(found, edges) == pytest.approx(data * edges.data + stage * edges.stage)


@settings(deadline=None, max_examples=30)
@given(cases())
def test_swaps_never_make_it_worse_and_repeat_themselves(case):
    shares, replicas, stages, edges = case
    options = {"replicas": replicas, "stages": stages, "edges": edges}
    once = map_cells(shares, **options, swaps=400)
    assert once == map_cells(shares, **options, swaps=400)
    assert bytes_between(once, edges) <= bytes_between(map_cells(shares, **options, swaps=0), edges) + 1e-9


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 8), st.integers(2, 8), st.data())
def test_filling_stage_by_stage_is_near_its_bound(replicas, stages, data):
    """At most stages - 1 crossings more, where every group is smaller than a stage."""
    left, shares = replicas * stages, {}
    while left:
        shares[f"g{len(shares)}"] = size = data.draw(st.integers(1, min(left, replicas - 1)))
        left -= size
    found = map_cells(shares, replicas=replicas, stages=stages, edges=EdgeBytes(data=1.0, stage=0.0), swaps=0)
    assert crossings(found)[0] <= least_data_crossings(list(shares.values()), replicas) + stages - 1


def test_expert_groups_stay_together_where_their_traffic_is_the_largest():
    shares = {"a": 6, "b": 6}
    edges = EdgeBytes(data=0.01, stage=1.0, expert=5.0, expert_servers=3)
    found = map_cells(shares, replicas=6, stages=2, edges=edges)
    assert crossings(found, 3)[2] == 0
    assert crossings(map_cells({"a": 4, "b": 8}, replicas=6, stages=2, edges=edges), 3)[2] == 4


def test_order_of_servers_is_by_stage_then_replica():
    found = map_cells({"a": 2, "b": 2}, replicas=2, stages=2, edges=EdgeBytes(data=1.0, stage=0.1))
    servers = {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]}
    assert sorted(server_order(found, servers)) == ["a1", "a2", "b1", "b2"]
    assert {server[0] for server in server_order(found, servers)[:2]} in ({"a"}, {"b"})


@pytest.mark.parametrize(
    ("shares", "expert", "said"),
    [({"a": 3}, 1, "wants 4 servers, each group 1 or more, found 3 in 1"), ({}, 1, "found 0"), ({"a": 4}, 3, "divide")],
)
def test_shares_that_do_not_fit_are_refused(shares, expert, said):
    edges = EdgeBytes(data=1.0, stage=1.0, expert=1.0, expert_servers=expert)
    with pytest.raises(ConfigError, match=said):
        map_cells(shares, replicas=2, stages=2, edges=edges)
