"""The mesh map, against the slowest version that is obviously right."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh

degrees = st.integers(min_value=1, max_value=4)
meshes = st.builds(Mesh, pp=degrees, dp_replicate=degrees, dp_shard=degrees, cp=degrees, tp=degrees)


@given(meshes)
def test_ranks_enumerate_the_mesh_in_row_major_order(mesh):
    oracle = list(product(*map(range, mesh.axes.values())))
    assert mesh.world_size == len(oracle)
    assert [tuple(mesh.coordinates(rank).values()) for rank in range(len(oracle))] == oracle


def test_degree_below_one_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        Mesh(tp=0)


def test_experts_must_divide_what_they_lie_over():
    assert Mesh(dp_shard=4, cp=2, ep=8).world_size == 8
    with pytest.raises(ConfigError, match=r"ep = 3 must divide dp_shard x cp = 4"):
        Mesh(dp_shard=4, ep=3)
