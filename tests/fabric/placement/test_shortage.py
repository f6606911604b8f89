"""What a gang misses, against all sets of holders."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.placement.selection import FreeGroup, select_servers
from gangline.fabric.placement.shortage import Holder, why_not


@st.composite
def full_fabrics(draw):
    """Groups, and holders of some of their servers."""
    free = {(f"g{g}", f"s{g}-{s}"): draw(st.integers(0, 1)) for g in range(draw(st.integers(1, 3))) for s in range(4)}
    names = {group for group, _ in free}
    groups = [
        FreeGroup(name=name, servers={s: places for (g, s), places in free.items() if g == name})
        for name in sorted(names)
    ]
    taken = [server for (_, server), places in free.items() if not places]
    owners = draw(st.lists(st.integers(0, 3), min_size=len(taken), max_size=len(taken)))
    holders = [
        Holder(name=f"h{h}", places={s: 1 for s, owner in zip(taken, owners, strict=True) if owner == h})
        for h in sorted(set(owners))
    ]
    return groups, holders


def without(groups, holders):
    """The groups after the end of these holders."""
    freed = {server: number for each in holders for server, number in each.places.items()}
    return [
        FreeGroup(name=g.name, servers={s: places + freed.get(s, 0) for s, places in g.servers.items()}) for g in groups
    ]


@given(full=full_fabrics(), tiles=st.integers(1, 12), tile=st.sampled_from([1, 1, 2, 3]))
def test_the_end_of_the_named_holders_makes_room_and_none_of_them_can_be_left_out(full, tiles, tile):
    groups, holders = full
    if select_servers(groups, tiles * tile, tile=tile):
        return
    found = why_not(groups, tiles * tile, tile=tile, holders=holders)
    fitting = [
        (len(some), sum(sum(each.places.values()) for each in some), {each.name for each in some})
        for number in range(1, len(holders) + 1)
        for some in combinations(holders, number)
        if select_servers(without(groups, some), tiles * tile, tile=tile)
    ]
    named = [each for each in holders if each.name in found.release]
    assert bool(found.release) == bool(fitting)
    if fitting:
        assert select_servers(without(groups, named), tiles * tile, tile=tile)
        assert not any(others < set(found.release) for _, _, others in fitting)
        if tile == 1 or min(fitting)[0] == 1:
            held = sum(sum(each.places.values()) for each in named)
            assert (len(named), held) == min(fitting)[:2]


@given(full=full_fabrics(), tile=st.integers(1, 3))
def test_the_largest_gang_starts_now_and_a_larger_one_does_not(full, tile):
    groups, _ = full
    largest = why_not(groups, 99, tile=tile).largest
    assert not largest or select_servers(groups, largest, tile=tile)
    assert not select_servers(groups, largest + tile, tile=tile)


def test_free_places_and_the_holder_to_release_are_named():
    groups = [FreeGroup(name="g", block="b", servers={"a": 1, "b": 0, "c": 0}), FreeGroup(name="h", servers={"d": 0})]
    small, large = Holder(name="small", places={"b": 1}), Holder(name="large", places={"c": 1, "d": 1})
    found = why_not(groups, 2, holders=[small, large])
    assert found.free == {("b", "g"): 1, ("", "h"): 0}
    assert (found.largest, found.release) == (1, ("small",))
    assert why_not(groups, 2, tile=2, holders=[small, large]).release == ("small",)
    assert why_not(groups, 9, holders=[small, large]).release == ()


def test_holder_whose_end_helps_nothing_is_not_named():
    groups = [FreeGroup(name="g", servers={"a": 0, "b": 0}), FreeGroup(name="h", servers={"c": 0})]
    holders = [Holder(name=name, places={server: 1}) for name, server in (("first", "c"), ("one", "a"), ("two", "b"))]
    assert why_not(groups, 2, tile=2, holders=holders).release == ("one", "two")
