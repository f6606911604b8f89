"""Servers of a stated network for a gang under Slurm."""

import pytest

from gangline.errors import CapacityError, UsageError
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.launch.slurm.batch_script import choose_servers
from gangline.spec.gang.podset import PipelineTraffic, Placement

FABRIC = Fabric(
    groups=(
        Group(name="g01", servers=("a1", "a2", "a10")),
        Group(name="g02", servers=("b1", "b2", "b3", "b4")),
        Group(name="g03", servers=("c1", "c2", "c3", "c4"), block="east"),
    )
)


def names(num_nodes, *, tile=1, among=None, pipeline=None):
    placement = Placement(tile=tile, pipeline=pipeline)
    return [each.name for each in choose_servers(FABRIC, num_nodes, placement, among=among)]


def test_one_group_that_holds_the_gang_is_taken_alone():
    assert names(4) == ["b1", "b2", "b3", "b4"]
    assert names(3) == ["a1", "a2", "a10"]


def test_groups_are_contiguous_and_in_the_order_of_the_file():
    assert names(7) == ["a1", "a2", "a10", "b1", "b2", "b3", "b4"]


def test_tile_never_spans_two_groups():
    assert names(6, tile=2) == ["a1", "a2", "b1", "b2", "b3", "b4"]


def test_only_servers_that_are_free_are_taken():
    assert names(3, among=["a1", "b2", "b4", "c1", "b3"]) == ["b2", "b3", "b4"]


def test_stages_and_replicas_of_a_pipeline_are_laid_out_by_what_they_send():
    heavy = PipelineTraffic(stages=2, data_edge_bytes=1e9, stage_edge_bytes=1.0)
    light = PipelineTraffic(stages=2, data_edge_bytes=1.0, stage_edge_bytes=1e9)
    free = ["a1", "a2", "b1", "b2"]
    in_order = names(4, among=free, pipeline=heavy)
    assert [name[0] for name in in_order] == ["a", "a", "b", "b"]  # each stage in one group
    apart = names(4, among=free, pipeline=light)
    assert [name[0] for name in apart] == ["a", "b", "a", "b"]  # each replica in one group


def test_gang_that_does_not_fit_is_shown_how_many_do():
    with pytest.raises(CapacityError, match="wanted 12 servers, found 11 among 11; name more of them, or plan for 11"):
        names(12)
    with pytest.raises(CapacityError, match="each 2 consecutive ones in one group, found 2 among 4"):
        names(4, tile=2, among=["a1", "a2", "b1", "c1"])


def test_server_that_no_group_has_is_refused():
    with pytest.raises(UsageError, match="found z9 in none of them"):
        names(1, among=["a1", "z9"])
