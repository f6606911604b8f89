"""Servers of a cluster for a gang, and why there are none; `tests/fabric/placement` judges the choice."""

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
from gangline.spec.gang.podset import PlacedServer


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


@st.composite
def fabrics(draw):
    sizes = st.lists(st.integers(0, 3), min_size=1, max_size=4)
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    blocks = {f"b{b}": {f"b{b}g{g}": draw(sizes) for g in range(n)} for b, n in enumerate(shape)}
    return fabric(blocks)


@given(rooms=fabrics(), num_pods=st.integers(1, 8))
def test_no_server_gets_more_pods_than_it_has_room_for(rooms, num_pods):
    chosen = select_servers(rooms, gang(num_pods))
    if isinstance(chosen, tuple):
        names = [server.name for server in chosen]
        assert len(names) == num_pods
        assert all(names.count(each.server.name) <= each.pods for each in rooms)


def test_the_least_room_is_left_over():
    rooms = fabric({"b": {"p": [3], "q": [3], "r": [2], "s": [1]}})
    chosen = select_servers(rooms, gang(7))
    assert sorted(server.group for server in chosen) == ["p"] * 3 + ["q"] * 3 + ["s"]


def test_why_not_reports_what_fits_now_and_who_takes_none():
    rooms = [room("a", 3), room("b", 0, refuses="is cordoned", empty=0), room("c", 0, empty=4)]
    found = explain_no_placement(rooms, gang(4))
    assert found.sentence == "4 pods of 1 cpu need room: 3 fit now on 3 servers; b is cordoned"
    assert not found.never


def test_what_never_fits_says_so():
    found = explain_no_placement([room("a", 0, empty=3)], gang(4, pool="fast"))
    assert found.sentence == "4 pods of 1 cpu never fit: 3 pods would fit if all servers of pool fast were empty"
    assert found.never


def test_a_lost_pod_goes_to_a_server_of_its_group_that_has_room():
    rooms = [room("a", 0, group="g1", block="b1"), room("z", 1, group="g1", block="b1"), room("c", 1, group="g2")]
    lost = PlacedServer(name="a", group="g1", block="b1")
    assert select_replacement(rooms, lost).name == "z"
    assert select_replacement(rooms[:1], lost) is None


def test_tiles_that_no_group_can_hold_never_fit_although_all_servers_could():
    rooms = [room("a", 1, group="g1"), room("b", 1, group="g2")]
    found = select_servers(rooms, gang(2, tile=2))
    assert found.never
    assert found.sentence == (
        "2 pods of 1 cpu, each 2 consecutive ones in one group, never fit: 0 pods would fit if all servers were empty"
    )
