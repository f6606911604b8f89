"""Rings as NCCL prints them: lines of the published format, and every order of a few nodes."""

from itertools import permutations

import pytest

from gangline.fabric.traffic.rings import NcclRing, read_rings

LOG = """\
host-a:36:36 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.1<0>
host-a:36:40 [0] NCCL INFO Channel 00/02 :  0  3  2  1  4  7  6  5
host-a:36:40 [0] NCCL INFO Channel 01/02 :  0  3  2  1  4  7  6  5
host-a:36:40 [0] NCCL INFO Trees [0] 1/-1/-1->0->4 [1] 1/4/-1->0->-1
host-a:36:40 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
host-a:36:41 [0] NCCL INFO Channel 00/04 :    0   1
"""


def ring(ranks):
    return NcclRing(channel=0, ranks=tuple(ranks))


def test_rings_of_the_wanted_communicator_are_read_and_connections_are_not():
    rings = read_rings(LOG.splitlines(), num_ranks=8)
    assert [each.channel for each in rings] == [0, 1]
    assert {each.ranks for each in rings} == {(0, 3, 2, 1, 4, 7, 6, 5)}
    assert all(each.node_order(ranks_per_node=4) == (0, 1) for each in rings)
    assert [each.ranks for each in read_rings(LOG.splitlines(), num_ranks=2)] == [(0, 1)]


@pytest.mark.parametrize("ranks_per_node", [1, 2])
def test_two_directions_of_all_orders_follow_the_plan(ranks_per_node):
    good = []
    for rest in permutations(range(1, 5)):
        order = (0, *rest)
        ranks = [node * ranks_per_node + local for node in order for local in range(ranks_per_node)]
        if ring(ranks).follows_plan(ranks_per_node=ranks_per_node):
            good.append(order)
    assert good == [(0, 1, 2, 3, 4), (0, 4, 3, 2, 1)]


def test_a_ring_that_begins_inside_a_node_visits_it_once():
    assert ring([0, 2, 3, 1]).node_order(ranks_per_node=2) == (0, 1)


def test_a_ring_that_comes_back_to_a_node_does_not_follow():
    crossing = ring([0, 2, 1, 3])
    assert crossing.node_order(ranks_per_node=2) == (0, 1, 0, 1)
    assert crossing.follows_plan(ranks_per_node=2) is False


def test_a_ring_within_one_node_follows():
    assert ring([0, 3, 1, 2]).follows_plan(ranks_per_node=4) is True


def test_of_a_cut_line_nothing_is_claimed():
    (cut,) = read_rings(["h:1:2 [0] NCCL INFO Channel 00/02 :   0   1   2   3   1..."], num_ranks=16)
    assert cut.ranks == (0, 1, 2, 3)
    assert cut.follows_plan(ranks_per_node=4) is None
