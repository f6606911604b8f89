"""The choice of servers, against every subset of groups."""

from itertools import combinations, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.kubernetes.placement.gang_request import GangRequest
from gangline.launch.kubernetes.placement.server_selection import (
    ServerCapacity,
    explain_no_placement,
    select_replacement,
    select_servers,
)
from gangline.launch.kubernetes.placement.servers import ServerFacts
from gangline.spec.gang.podset import PlacedServer, Placement


def fabric(blocks, *, busy=()):
    """Rooms for `{block: {group: pods of each of its servers}}`."""
    return [
        room(f"{group}-{i}", pods, group=group, block=block)
        for block, groups in blocks.items()
        for group, servers in groups.items()
        for i, pods in enumerate(servers)
    ]


def room(name, pods, *, group="", block="", refuses="", empty=None):
    server = ServerFacts(name=name, node=name, group=group, block=block)
    return ServerCapacity(server=server, pods=pods, pods_empty=pods if empty is None else empty, refuses=refuses)


def gang(num_pods, **more):
    return GangRequest(gang="g", num_pods=num_pods, need={"cpu": 1000, "pods": 1}, **more)


def counts(placement):
    return len({s.block for s in placement.servers}), len({(s.block, s.group) for s in placement.servers})


@st.composite
def fabrics(draw):
    sizes = st.lists(st.integers(0, 3), min_size=1, max_size=4)
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    blocks = {f"b{b}": {f"b{b}g{g}": draw(sizes) for g in range(n)} for b, n in enumerate(shape)}
    return fabric(blocks)


def fewest(rooms, request):
    """Fewest blocks, then groups, by trying all subsets of groups; None: nothing fits."""
    groups = {}
    for each in rooms:
        key = (each.server.block, each.server.group)
        groups[key] = groups.get(key, 0) + each.pods
    whole = {key: pods // request.tile * request.tile for key, pods in groups.items()}
    fitting = [
        (len({block for block, _ in subset}), len(subset))
        for size in range(1, len(whole) + 1)
        for subset in combinations(whole, size)
        if sum(whole[key] for key in subset) >= request.num_pods
    ]
    return min(fitting, default=None)


@given(rooms=fabrics(), tiles=st.integers(1, 6), tile=st.integers(1, 3))
def test_no_subset_of_groups_does_with_fewer(rooms, tiles, tile):
    request = gang(tiles * tile, tile=tile)
    chosen, best = select_servers(rooms, request), fewest(rooms, request)
    if best is None:
        assert chosen.sentence
        assert chosen.fits < request.num_pods
    else:
        assert counts(chosen) == best


@given(rooms=fabrics(), num_pods=st.integers(1, 8))
def test_no_server_gets_more_pods_than_it_has_room_for(rooms, num_pods):
    chosen = select_servers(rooms, gang(num_pods))
    if isinstance(chosen, Placement):
        names = [server.name for server in chosen.servers]
        assert len(names) == num_pods
        assert all(names.count(each.server.name) <= each.pods for each in rooms)


@given(rooms=fabrics(), num_pods=st.integers(1, 8))
def test_groups_and_blocks_are_contiguous_in_rank_order(rooms, num_pods):
    chosen = select_servers(rooms, gang(num_pods))
    if isinstance(chosen, Placement):
        for key in (lambda s: s.block, lambda s: (s.block, s.group), lambda s: s.name):
            runs = [name for name, _ in groupby(chosen.servers, key=key)]
            assert len(runs) == len(set(runs))


@given(rooms=fabrics(), tiles=st.integers(1, 4), tile=st.integers(2, 3))
def test_every_tile_lies_in_one_group(rooms, tiles, tile):
    chosen = select_servers(rooms, gang(tiles * tile, tile=tile))
    if isinstance(chosen, Placement):
        for start in range(0, len(chosen.servers), tile):
            assert len({server.group for server in chosen.servers[start : start + tile]}) == 1


@given(rooms=fabrics(), num_pods=st.integers(1, 8), data=st.data())
def test_more_room_never_needs_more_groups(rooms, num_pods, data):
    before = select_servers(rooms, gang(num_pods))
    if isinstance(before, Placement):
        place = data.draw(st.integers(0, len(rooms) - 1))
        more = [room(e.server.name, e.pods + (i == place), group=e.server.group, block=e.server.block)
                for i, e in enumerate(rooms)]  # fmt: skip
        assert counts(select_servers(more, gang(num_pods))) <= counts(before)


@given(rooms=fabrics(), num_pods=st.integers(1, 8), seed=st.randoms())
def test_the_order_of_the_question_changes_nothing(rooms, num_pods, seed):
    mixed = list(rooms)
    seed.shuffle(mixed)
    assert select_servers(mixed, gang(num_pods)) == select_servers(rooms, gang(num_pods))


def test_the_least_room_is_left_over():
    rooms = fabric({"b": {"p": [3], "q": [3], "r": [2], "s": [1]}})
    chosen = select_servers(rooms, gang(7))
    assert sorted(server.group for server in chosen.servers) == ["p"] * 3 + ["q"] * 3 + ["s"]


def test_numbers_in_names_count_as_numbers():
    rooms = [room(f"a-{i}", 1) for i in range(12)]
    assert [server.name for server in select_servers(rooms, gang(11)).servers] == [f"a-{i}" for i in range(11)]


def test_a_placement_that_was_planned_is_taken_as_it_is():
    rooms = [room(name, 2) for name in "abc"]
    chosen = select_servers(rooms, gang(3, servers=("c", "a", "a")))
    assert [server.name for server in chosen.servers] == ["c", "a", "a"]


@pytest.mark.parametrize(
    ("servers", "says"),
    [(("x", "a"), "server x, which does not exist"), (("b", "a"), "server b, which is cordoned"),
     (("a", "a"), "server a, which has room for 1 of 2 pods of 1 cpu")],
)  # fmt: skip
def test_a_planned_server_without_room_says_which_and_why(servers, says):
    rooms = [room("a", 1), room("b", 0, refuses="is cordoned")]
    assert says in select_servers(rooms, gang(2, servers=servers)).sentence


def test_why_not_tells_what_fits_now_and_who_takes_none():
    rooms = [room("a", 3), room("b", 0, refuses="is cordoned", empty=0), room("c", 0, empty=4)]
    found = explain_no_placement(rooms, gang(4))
    assert found.sentence == "4 pods of 1 cpu need room: 3 fit now on 3 servers; b is cordoned"
    assert (found.fits, found.never) == (3, False)


def test_what_never_fits_says_so():
    found = explain_no_placement([room("a", 0, empty=3)], gang(4, pool="fast"))
    assert found.sentence == "4 pods of 1 cpu never fit: 3 pods would fit if all servers of pool fast were empty"
    assert found.never


LOST = PlacedServer(name="a", group="g1", block="b1")


@pytest.mark.parametrize(
    ("rooms", "goes_to"),
    [
        ([room("a", 1, group="g1", block="b1"), room("b", 1, group="g1", block="b1")], "a"),
        ([room("a", 0, group="g1", block="b1"), room("z", 1, group="g1", block="b1"), room("c", 1, group="g2")], "z"),
        ([room("c", 1, group="g3", block="b2"), room("d", 1, group="g2", block="b1")], "d"),
        ([room("c", 1, group="g3", block="b2")], "c"),
    ],
    ids=["its old server", "its group", "its block", "anywhere"],
)
def test_a_lost_pod_goes_to_the_nearest_free_server(rooms, goes_to):
    assert select_replacement(rooms, LOST).name == goes_to


def test_a_lost_pod_waits_where_no_server_is_free():
    assert select_replacement([room("a", 0)], LOST) is None
