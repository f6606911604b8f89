"""Updates on their way take the memory that plans and planner count, to the byte."""

from itertools import product

import pytest
from tests.optim.executors.update_memory import assembled, held_by
from tests.train.parallel.compress.ranks import on_ranks

GEOMETRIES = ("owner", "contiguous", "permuted")


@pytest.mark.parametrize(("size", "wrapped"), [(2, ("ddp", "zero1")), (4, ("hsdp",))], ids=["copies", "shards"])
def test_a_rank_holds_between_steps_what_the_formula_says(size, wrapped):
    cases = list(product(wrapped, GEOMETRIES, (True, False)))
    for rank in on_ranks(size, held_by, cases):
        for found, (_, geometry, overlap) in zip(rank, cases, strict=True):
            assert found["kind"] == geometry
            assert found["plan"] == (found["planner"] if overlap else 0)
            assert found["found"] == [pytest.approx(found["planner"], abs=1e-6)] * 2


@pytest.mark.parametrize("hosts", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_host_assembles_one_group_while_its_neighbours_travel(hosts):
    for found in on_ranks(hosts, assembled, 5):
        assert found["groups"] == 5
        assert found["found"] == found["planner"] == 6 * found["size"]
