"""Sizes of an elastic gang: every number of ranks in the range that can go on with the same training."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.planner.layouts.layout import elastic_sizes
from gangline.spec.config.line import Line, MeshTable, ProjectTable, TrainTable
from gangline.spec.mesh import Mesh


def line_of(ranks, *, batch=8, micro_batch="auto"):
    return Line(
        project=ProjectTable(name="p", task="model:M"),
        train=TrainTable(steps=4, global_batch=batch, ranks=ranks, mesh=MeshTable(micro_batch=micro_batch)),
    )


def sizes_of(line, strategy, mesh, micro_batch, *, holds=lambda shape, micro_batch: True):
    return elastic_sizes(line, strategy=strategy, mesh=mesh, micro_batch=micro_batch, holds=holds)


def named(ranks, strategy, mesh, **line):
    return [size.name for size in sizes_of(line_of(ranks, **line), strategy, mesh, 4)[0]]


def test_each_strategy_keeps_its_family():
    assert named((1, 4), "ddp", Mesh(dp_replicate=2)) == ["none", "ddp-3", "ddp-4"]
    assert named((1, 4), "fsdp", Mesh(dp_shard=4)) == ["none", "fsdp-2", "fsdp-3"]
    assert named((1, 3), "none", Mesh()) == ["ddp-2", "ddp-3"]
    assert named((2, 8), "hsdp", Mesh(dp_replicate=2, dp_shard=2)) == ["fsdp-2", "hsdp-3x2", "hsdp-4x2"]
    assert named((2, 8), "tp", Mesh(dp_shard=2, tp=2)) == ["tp-2", "tp-3x2", "tp-4x2"]
    assert named((2, 12), "explicit", Mesh(pp=2, dp_shard=2)) == ["explicit-2", "explicit-8"], "6 shares of 8 differ"


def test_one_number_of_ranks_or_groups_that_drift_are_not_elastic():
    assert named(2, "ddp", Mesh(dp_replicate=2)) == []
    assert named("auto", "ddp", Mesh(dp_replicate=2)) == []
    assert named((1, 4), "diloco", Mesh(dp_replicate=2)) == []


@given(low=st.integers(1, 6), more=st.integers(0, 6), batch=st.integers(1, 40), own=st.integers(1, 6))
def test_every_size_has_samples_for_each_rank_and_takes_no_more_at_once(low, more, batch, own):
    chosen = Mesh(dp_replicate=own)
    sizes, _ = sizes_of(line_of((low, low + more), batch=batch), "ddp", chosen, 3)
    worlds = [size.mesh.world_size for size in sizes]
    assert worlds == [world for world in range(low, low + more + 1) if world != own and world <= batch]
    assert all(1 <= size.micro_batch <= 3 for size in sizes)


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_micro_batch_of_the_line_stays(micro_batch):
    line = line_of((1, 4), micro_batch=micro_batch)
    sizes, _ = sizes_of(line, "ddp", Mesh(dp_replicate=2), micro_batch)
    assert {size.micro_batch for size in sizes} == {micro_batch}
    assert sizes_of(replace(line, train=replace(line.train, ranks=2)), "ddp", Mesh(), 1) == ((), ())


def test_sizes_too_few_to_hold_the_model_are_left_out_and_reported():
    sizes, too_few = sizes_of(
        line_of((1, 4)), "fsdp", Mesh(dp_shard=4), 2, holds=lambda shape, micro_batch: shape.mesh.dp_shard > 2
    )
    assert ([size.name for size in sizes], too_few) == (["fsdp-3"], (1, 2))
    [alone] = [shape for shape in seen_by(line_of((1, 4)), Mesh(dp_shard=4)) if shape.mesh.world_size == 1]
    assert alone.strategy == "none"


def seen_by(line, mesh):
    """Shapes whose memory is asked for."""
    seen = []
    sizes_of(line, "fsdp", mesh, 2, holds=lambda shape, micro_batch: seen.append(shape) or True)
    return seen
