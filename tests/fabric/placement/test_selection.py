"""The choice of groups, against every subset of up to ten of them."""

from itertools import combinations, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.placement.selection import FreeGroup, fewest, select_replacement, select_servers
from gangline.spec.gang.podset import PlacedServer

LEAST = (3, 3, 2, 1)
"""KEP-2724 of Kubernetes: 7 pods in these free places take 3, 3 and 1."""


@st.composite
def fabrics(draw, *, most_blocks):
    """Groups of single-place servers, at most ten."""
    number = draw(st.integers(1, 10))
    sizes = draw(st.lists(st.integers(0, 12), min_size=number, max_size=number))
    blocks = draw(st.lists(st.integers(1, most_blocks), min_size=number, max_size=number))
    return [group(f"g{i}", size, block=f"b{block}") for i, (size, block) in enumerate(zip(sizes, blocks, strict=True))]


def group(name, size, *, block="b", places=1):
    return FreeGroup(name=name, block=block, servers={f"{block}-{name}-{i}": places for i in range(size)})


def cost(groups, servers):
    """Blocks, groups, and places that stay free in these groups."""
    used = {(server.block, server.group) for server in servers}
    held = sum(each.places for each in groups if (each.block, each.name) in used)
    return len({block for block, _ in used}), len(used), held - len(servers)


def least(groups, num_pods):
    """The least cost of all subsets of groups; None: all of them hold less."""
    return min(
        (
            (len({each.block for each in subset}), number, sum(each.places for each in subset) - num_pods)
            for number in range(1, len(groups) + 1)
            for subset in combinations(groups, number)
            if sum(each.places for each in subset) >= num_pods
        ),
        default=None,
    )


@given(groups=fabrics(most_blocks=1), num_pods=st.integers(1, 60))
def test_on_one_level_no_subset_has_fewer_groups_or_leaves_fewer_places_free(groups, num_pods):
    servers = select_servers(groups, num_pods)
    assert (cost(groups, servers) if servers else None) == least(groups, num_pods)


@given(groups=fabrics(most_blocks=4), num_pods=st.integers(1, 60))
def test_on_two_levels_no_subset_has_fewer_blocks_or_groups(groups, num_pods):
    servers, best = select_servers(groups, num_pods), least(groups, num_pods)
    if best is None or not servers:
        assert (servers, best) == ((), None)
        return
    found = cost(groups, servers)
    assert found[:2] == best[:2]
    taken = [each for each in groups if each.block in {server.block for server in servers}]
    assert found == (best if best[0] == 1 else least(taken, num_pods)), "within the blocks that it takes"


@given(groups=fabrics(most_blocks=3), num_pods=st.integers(1, 30), data=st.data())
def test_renaming_and_reordering_groups_changes_no_cost(groups, num_pods, data):
    mixed = data.draw(st.permutations(groups))
    assert select_servers(mixed, num_pods) == select_servers(groups, num_pods)
    renamed = [FreeGroup(name=f"n{i}", block=f"z{each.block}", servers=each.servers) for i, each in enumerate(mixed)]
    one, other = select_servers(groups, num_pods), select_servers(renamed, num_pods)
    assert cost(groups, one)[:2] == cost(renamed, other)[:2]


@given(groups=fabrics(most_blocks=3), num_pods=st.integers(1, 30), data=st.data())
def test_more_free_servers_never_need_more_blocks_or_groups(groups, num_pods, data):
    before = select_servers(groups, num_pods)
    if before:
        grown = data.draw(st.sampled_from(groups))
        more = [group(e.name, len(e.servers) + 1, block=e.block) if e is grown else e for e in groups]
        assert cost(more, select_servers(more, num_pods))[:2] <= cost(groups, before)[:2]


@given(groups=fabrics(most_blocks=3), tiles=st.integers(1, 8), tile=st.integers(1, 4))
def test_every_tile_lies_in_one_group_and_groups_and_blocks_are_contiguous(groups, tiles, tile):
    servers = select_servers(groups, tiles * tile, tile=tile)
    whole = sum(each.places // tile for each in groups)
    assert len(servers) == (tiles * tile if whole >= tiles else 0)
    for start in range(0, len(servers), tile):
        assert len({(s.block, s.group) for s in servers[start : start + tile]}) == 1
    for key in (lambda s: s.block, lambda s: (s.block, s.group), lambda s: s.name):
        runs = [name for name, _ in groupby(servers, key=key)]
        assert len(runs) == len(set(runs))


@pytest.mark.parametrize(
    ("free", "num_pods", "taken"),
    [(LEAST, 7, [3, 3, 1]), ((26, 12, 29, 29, 17, 33, 36), 58, [29, 29]), ((4, 4, 4), 9, [4, 4, 1])],
    ids=["kep", "one swap is not enough", "equal"],
)
def test_the_least_is_left_free(free, num_pods, taken):
    servers = select_servers([group(f"g{i}", size) for i, size in enumerate(free)], num_pods)
    assert [len(list(run)) for _, run in groupby(servers, key=lambda server: server.group)] == taken


def test_blocks_with_fewer_and_larger_groups_are_taken_although_another_holds_more():
    blocks = {"a": (4, 4, 4, 4), "b": (8, 4), "c": (8,)}
    groups = [group(f"g{i}", size, block=block) for block, sizes in blocks.items() for i, size in enumerate(sizes)]
    assert cost(groups, select_servers(groups, 17)) == (2, 3, 3)


def test_of_equal_choices_the_first_names_are_taken():
    assert fewest([2, 3, 3, 3, 2], 5) == (0, 1)
    servers = select_servers([group(f"g{i}", 2, block=f"b{i % 2}") for i in range(11)], 3)
    assert {server.group for server in servers} == {"g0", "g2"}


def test_pods_stay_together_on_the_servers_with_most_places():
    free = FreeGroup(servers={"a": 1, "b": 3, "c": 2, "d": 3})
    assert [server.name for server in select_servers([free], 5)] == ["b", "b", "b", "d", "d"]


LOST = PlacedServer(name="a", group="g1", block="b1")


@pytest.mark.parametrize(
    ("free", "goes_to"),
    [
        (["b g1 b1", "a g1 b1"], "a"),
        (["c g2 b1", "z g1 b1"], "z"),
        (["c g3 b2", "d g2 b1"], "d"),
        (["d g1 b2", "e g2 b1"], "e"),
        (["c g3 b2"], "c"),
    ],
    ids=["its old server", "its group", "its block", "a group of another block is none of its own", "anywhere"],
)
def test_a_lost_pod_goes_to_the_nearest_free_server(free, goes_to):
    servers = [PlacedServer(name=name, group=group, block=block) for name, group, block in map(str.split, free)]
    assert select_replacement(servers, LOST).name == goes_to


def test_a_lost_pod_waits_where_no_server_is_free():
    assert select_replacement([], LOST) is None
