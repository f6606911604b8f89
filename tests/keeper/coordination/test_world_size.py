"""Which ranks on which nodes: pure, against what must hold of every shape."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.coordination.world_size import GangShape, WorldSizes

small = st.integers(1, 6)


@given(
    num_nodes=small, per_node=small, worlds=st.sets(st.integers(1, 36), max_size=8), at_most=st.integers(1, 40),
    there=st.sets(st.integers(1, 5)), stretches=st.booleans(),
)  # fmt: skip
def test_a_shape_is_ready_wanted_and_fits_on_nodes_that_are_there(
    num_nodes, per_node, worlds, at_most, there, stretches
):
    own = num_nodes * per_node
    nodes = [0, *sorted(node for node in there if node < num_nodes)]
    stretches = stretches and num_nodes == 1
    sizes = WorldSizes(worlds=(own, *worlds), own=own, per_node=per_node, stretches=stretches)
    shape = sizes.fitting(nodes, at_most=at_most)
    if shape is None:
        return
    assert shape.world_size in sizes.worlds
    assert shape.world_size <= at_most
    assert set(shape.nodes) <= set(nodes)
    assert shape.nodes[0] == 0, "node 0 has the store, and rank 0"
    assert [rank for node in shape.nodes for rank in shape.ranks(node)] == list(range(shape.world_size))
    assert stretches or shape.per_node <= per_node


def test_a_gang_that_is_not_elastic_has_one_shape_or_waits():
    sizes = WorldSizes(worlds=(4,), own=4, per_node=2)
    assert sizes.fitting([0, 1], at_most=4) == GangShape(world_size=4, nodes=(0, 1))
    assert sizes.fitting([0], at_most=4) is None


def test_nodes_close_ranks_where_one_is_missing():
    shape = WorldSizes(worlds=(6, 4, 2, 1), own=6, per_node=2).fitting([0, 2], at_most=6)
    assert shape == GangShape(world_size=4, nodes=(0, 2))
    assert (shape.ranks(2), shape.ranks(1), shape.place(1)) == (range(2, 4), range(0), None)
