"""Geometry of buckets: what padding costs, what the objective chooses, what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.qwen3 import QWEN3

from gangline.errors import ConfigError
from gangline.optim.plan.buckets import buckets
from gangline.optim.plan.costs import DeviceCurve, MuonSpec, cost
from gangline.optim.plan.geometry import GeometryProblem, choose_geometry
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.owners import WorkItem, largest_first, loads_of
from gangline.units import Bytes, Elements


def problem_of(matrices, ranks, *, limit=None, **more):
    device = DeviceCurve()
    items = [WorkItem(key=each.key, cost=device.seconds(MuonSpec(), each.shape)) for each in matrices]
    return GeometryProblem(items=items, buckets=buckets(matrices, limit and Elements(limit)), ranks=ranks, **more)


@pytest.mark.parametrize(("size", "ranks", "sent"), [("8B", 32, 4.43), ("8B", 64, 7.77), ("32B", 64, 4.69)])
def test_equal_shards_of_sixteen_buckets_under_a_global_map_are_mostly_padding(size, ranks, sent):
    """Equal costs are dealt in the order of the buffer."""
    matrices = QWEN3[size].matrices("split")
    total = sum(each.elements.value for each in matrices)
    items = [
        WorkItem(key=(f"{len(matrices) - at:04}", ""), cost=cost(MuonSpec(), each.shape))
        for at, each in enumerate(matrices)
    ]
    owners = largest_first(items, ranks)
    found = buckets(matrices, Elements(total / 16))
    assert len(found) == 16
    assert round(sum(padded(each, owners, ranks) for each in found) / total, 2) == sent
    (whole,) = buckets(matrices, None)
    assert 1 <= round(padded(whole, owners, ranks) / total, 2) <= 1.08


def padded(bucket, owners, ranks):
    """Elements of shards as large as the largest."""
    return ranks * max(loads_of([owners[at] for at in bucket.places], bucket.sizes, ranks))


def test_operations_of_a_bucket():
    problem = problem_of(QWEN3["32B"].matrices("fused"), 256, limit=400e6)
    contiguous, owner = (choose_geometry(problem, kind) for kind in ("contiguous", "owner"))
    assert {each.operations for each in contiguous.buckets} == {256}
    assert max(each.operations for each in owner.buckets) == 4
    assert max(len(set(each.owners)) for each in contiguous.buckets) <= 4


def test_balance_alone_takes_a_permuted_bucket_only_where_it_is_as_even():
    whole = problem_of(QWEN3["32B"].matrices("split"), 8)
    assert choose_geometry(whole).buckets[0].kind == "permuted"
    small = problem_of(QWEN3["8B"].matrices("split"), 32, limit=400e6)
    assert choose_geometry(small).buckets[0].kind == "owner"
    with pytest.raises(ConfigError, match=r"'permuted' on 32 ranks .* use geometry = 'auto' or 'owner'"):
        choose_geometry(small, "permuted")


def test_cheap_synchronization_alone_takes_the_fewest_operations():
    problem = problem_of(QWEN3["8B"].matrices("split"), 8, limit=400e6, alpha=0)
    prices = {kind: choose_geometry(problem, kind).price for kind in ("contiguous", "owner")}
    found = choose_geometry(problem)
    assert found.objective == found.price == min(prices.values())


shapes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20)


@given(shapes=shapes, ranks=st.integers(1, 5), limit=st.one_of(st.none(), st.integers(1, 200)))
@settings(max_examples=60)
def test_every_geometry_gives_each_matrix_one_owner(shapes, ranks, limit):
    matrices = [LogicalMatrix(fqn=f"m{at:02}", shape=shape) for at, shape in enumerate(shapes)]
    problem = problem_of(matrices, ranks, limit=limit)
    best = choose_geometry(problem)
    for kind in ("contiguous", "permuted", "owner"):
        try:
            found = choose_geometry(problem, kind)
        except ConfigError:
            assert kind == "permuted"
            continue
        assert best.objective <= found.objective + 1e-8
        assert sorted(at for each in found.buckets for at in each.places) == list(range(len(matrices)))
        for bucket, planned in zip(problem.buckets, found.buckets, strict=True):
            assert [found.owners[at] for at in planned.places] == list(planned.owners)
            held = [sum(s for s, o in zip(bucket.sizes, planned.owners, strict=True) if o == r) for r in range(ranks)]
            if kind == "permuted":
                assert max(held) == planned.shard <= 1.3 * sum(held) / ranks
            if kind == "contiguous":
                assert all(a <= b for a, b in pairwise(planned.owners))
            if kind == "owner":
                assert (planned.padded, planned.shard) == (1.0, 0)


def test_a_map_above_the_owner_memory_is_not_a_candidate():
    matrices = [LogicalMatrix(fqn=f"m{at}", shape=(4, 4)) for at in range(4)]
    items = [WorkItem(key=each.key, cost=cost(MuonSpec(), each.shape), owner_bytes=Bytes(10)) for each in matrices]
    problem = GeometryProblem(items=items, buckets=buckets(matrices, None), ranks=2, memory=Bytes(20))
    found = choose_geometry(problem)
    assert sorted(found.owners) == [0, 0, 1, 1]


def test_permuted_buckets_carry_the_loads_of_those_before():
    """The last two matrices are the first bucket; the first takes the rank that it left with less to do."""
    matrices = [LogicalMatrix(fqn=f"m{at}", shape=shape) for at, shape in enumerate([(8, 8), (8, 8), (9, 8), (7, 8)])]
    found = choose_geometry(problem_of(matrices, 2, limit=100), "permuted")
    assert [each.places for each in found.buckets] == [(3, 2), (1, 0)]
    assert found.owners == (1, 0, 0, 1)


def test_contiguous_slices_above_the_owner_memory_are_refused():
    matrices = [LogicalMatrix(fqn=f"m{at}", shape=(4, 4)) for at in range(4)]
    held = [10, 10, 1, 1]
    items = [
        WorkItem(key=each.key, cost=cost(MuonSpec(), each.shape), owner_bytes=Bytes(size))
        for each, size in zip(matrices, held, strict=True)
    ]
    problem = GeometryProblem(items=items, buckets=buckets(matrices, None), ranks=2, memory=Bytes(11))
    with pytest.raises(ConfigError, match="'contiguous' on 2 ranks keeps within owner_memory_bytes"):
        choose_geometry(problem, "contiguous")
    assert choose_geometry(problem).buckets[0].kind != "contiguous"


def test_alpha_is_a_share():
    with pytest.raises(ConfigError, match=r"alpha is from 0 to 1, found 1\.5"):
        GeometryProblem(items=[], buckets=[], ranks=1, alpha=1.5)
