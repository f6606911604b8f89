"""Several gangs at once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.gang_queue import place_queue
from gangline.fabric.placement import FreeGroup


def groups_of(*sizes):
    return [FreeGroup(name=f"g{i}", servers={f"g{i}-{s}": 1 for s in range(size)}) for i, size in enumerate(sizes)]


def groups_used(servers):
    return len({server.group for server in servers})


@given(sizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=16))
def test_gangs_whose_sizes_divide_each_other_stay_whole_in_the_fewest_groups(sizes):
    gangs = {f"gang-{i}": size for i, size in enumerate(sizes)}
    found = place_queue(groups_of(*[8] * 16), gangs)
    assert all(groups_used(servers) == 1 for servers in found.servers.values())
    assert list(found.servers) == list(gangs)
    assert (found.num_groups, found.gap) == (-(-sum(sizes) // 8), 0)


@given(free=st.lists(st.integers(1, 6), min_size=1, max_size=5), sizes=st.lists(st.integers(1, 8), max_size=8))
def test_no_server_is_given_twice_and_the_bound_is_below_what_is_used(free, sizes):
    gangs = {f"gang-{i}": size for i, size in enumerate(sizes)}
    found = place_queue(groups_of(*free), gangs)
    given_servers = [server.name for servers in found.servers.values() for server in servers]
    assert max(Counter(given_servers).values(), default=1) == 1
    assert all(len(servers) == gangs[name] for name, servers in found.servers.items())
    assert found.gap >= 0
    left = sum(free) - len(given_servers)
    assert all(size > left for name, size in gangs.items() if name not in found.servers)


def test_the_fullest_group_with_room_is_taken_and_the_gap_is_told():
    found = place_queue(groups_of(5, 3, 4), {"a": 3, "b": 2, "c": 4})
    assert {name: servers[0].group for name, servers in found.servers.items()} == {"a": "g1", "b": "g2", "c": "g0"}
    assert (found.num_groups, found.least_groups, found.gap) == (3, 2, 1)


def test_gangs_whose_sizes_divide_each_other_go_largest_first():
    found = place_queue(groups_of(5, 4), {"first": 1, "second": 4, "third": 4})
    assert [groups_used(servers) for servers in found.servers.values()] == [1, 1, 1]
