"""Ranks on other servers than those they were given."""

from gangline.fabric.placement.order import verify
from gangline.spec.gang.podset import PlacedServer

PLACED = tuple(PlacedServer(name=f"s{i}", group=f"g{i // 2}") for i in range(4))


def test_gang_that_runs_as_placed_crosses_once_a_group():
    found = verify(PLACED, ["s0", "s1", "s2", "s3"])
    assert (found.num_moved, found.moved, found.num_groups, found.crossings) == (0, (), 2, 2)


def test_moved_nodes_are_named_and_their_order_counted():
    found = verify(PLACED, ["s0", "s2", "s1", "s3"])
    assert [(each.node_rank, each.placed, each.found) for each in found.moved] == [(1, "s1", "s2"), (2, "s2", "s1")]
    assert (found.num_moved, found.crossings) == (2, 4)


def test_server_that_was_not_given_has_an_unknown_group_so_that_crossings_are_unknown():
    found = verify(PLACED, ["s0", "s1", "s2", "x"])
    assert (found.num_moved, found.num_groups, found.crossings) == (1, None, None)


def test_node_that_is_not_there_counts_as_moved():
    assert verify(PLACED, ["s0", "s1", "s2"]).num_moved == 1


def test_groups_of_one_name_in_two_blocks_are_two():
    placed = [PlacedServer(name=name, group="g", block=f"b-{name}") for name in "ab"]
    assert (verify(placed, ["a", "b"]).num_groups, verify(placed, ["a", "b"]).crossings) == (2, 2)
    assert verify(placed, ["a", "a"]).crossings == 0


def test_edges_of_the_ring_are_counted_by_group():
    found = verify(PLACED, ["s0", "s1", "s2", "s3"]).edges
    assert [(each.source, each.target, each.edges) for each in found] == [
        ("/g0", "/g0", 1), ("/g0", "/g1", 1), ("/g1", "/g0", 1), ("/g1", "/g1", 1),
    ]  # fmt: skip
    assert verify(PLACED, ["s0", "s2", "s1", "x"]).edges == ()
    assert verify(PLACED[:1], ["s0"]).edges == ()


def test_edges_between_many_groups_are_left_out_of_the_record():
    placed = [PlacedServer(name=f"s{i}", group=f"g{i}") for i in range(65)]
    found = verify(placed, [each.name for each in placed])
    assert (found.crossings, found.edges) == (65, ())


def test_tiles_that_stand_in_several_groups_are_named_with_them():
    found = verify(PLACED, ["s0", "s2", "s1", "s3"], tile=2)
    assert [(each.first, each.last, each.groups) for each in found.split] == [
        (0, 1, ("/g0", "/g1")),
        (2, 3, ("/g0", "/g1")),
    ]
    assert found.num_split == 2
    assert (verify(PLACED, ["s2", "s3", "s0", "s1"], tile=2).num_split, verify(PLACED, ["s0", "s2"]).num_split) == (
        0,
        0,
    )


def test_tiles_are_not_judged_where_a_group_is_not_known():
    found = verify(PLACED, ["s0", "s2", "s1", "x"], tile=2)
    assert (found.num_split, found.split) == (None, ())


def test_first_of_many_split_tiles_are_kept_and_all_counted():
    placed = [PlacedServer(name=f"s{i}", group=f"g{i}") for i in range(64)]
    found = verify(placed, [each.name for each in placed], tile=2)
    assert (found.num_split, len(found.split)) == (32, 20)
