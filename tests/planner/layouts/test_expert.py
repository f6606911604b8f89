"""How many ranks share the experts of a model: whole ones on each, and never a number that leaves a rest."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, TRACED, gpus, line, step_load_of
from torch import nn

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.cost.traffic import collectives, unknown_traffic
from gangline.planner.layouts.degrees import expert_mesh
from gangline.planner.layouts.layout import Layout
from gangline.spec.config.line import MeshTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory
from gangline.spec.profile import Unit
from gangline.train.moe import Experts
from gangline.train.parallel.expert_parallel import common_experts
from gangline.train.task import ParallelHints


def holding(experts):
    return replace(SMALL, experts=experts)


@pytest.mark.parametrize(("experts", "ep"), [(8, 8), (64, 8), (4, 4), (12, 4), (None, 8)])
def test_peers_share_experts_evenly_and_shards_lie_over_the_rest(experts, ep):
    choice = choose_plan(line(strategy="ep", batch=64), SITE, gpus(8), holding(experts))
    assert choice.mesh == Mesh(dp_shard=8, ep=ep)


def test_experts_that_no_two_ranks_can_share_are_refused_before_anything_is_queued():
    with pytest.raises(
        ConfigError, match=r"divides the 3 ranks and the 8 experts, found none but 1; .* \"fsdp\" works"
    ):
        expert_mesh(3, holding(8))


def test_a_degree_that_leaves_a_rest_is_refused_with_those_that_work():
    asked = line(strategy="explicit", batch=64, mesh=MeshTable(dp_shard=8, ep=8))
    with pytest.raises(ConfigError, match=r"train\.mesh\.ep: wanted a divisor of the 12 experts, found 8; 1, 2, 3, 4"):
        choose_plan(asked, SITE, gpus(8), holding(12))


def test_modules_of_several_sizes_have_their_common_divisor():
    model = nn.ModuleDict({"a": Experts(4, 8, 12), "b": Experts(4, 8, 8), "c": nn.Linear(3, 3)})
    assert common_experts(model, ParallelHints(experts="[ab]")) == 4
    assert common_experts(model, ParallelHints()) is None


def test_rows_go_there_and_back_and_so_do_their_gradients():
    """Of 4 samples and 2 blocks: 1,000 numbers each, in float32; with 8 counts of 8 bytes in each forward pass."""
    block = Unit(
        name="layers.0", count=2, parameters=900, flops=1.0, saved_bytes=1.0, boundary_bytes=1.0,
        expert_parameters=800, expert_entries=1000.0,
    )  # fmt: skip
    trace = replace(TRACED.traces[0], units=(block,))
    profile = replace(TRACED, parameters=1800, experts=8, traces=(trace,))
    shape, load = Layout("ep", Mesh(dp_shard=4, ep=2)), step_load_of(micro_batch=4, micro_batches=1, precision="fp32")
    assert unknown_traffic(profile, shape, load) == ""
    sent = {(each.part, each.kind, each.ranks): each for each in collectives(profile, shape, load)}
    rows, counts = sent["compute", "all_to_all", 2], sent["communication", "all_to_all", 2]
    assert (rows.count, rows.size_bytes) == (4 * 2, 4 * 4 * 1000)
    assert (counts.count, counts.size_bytes) == (2, 64)
    assert sent["communication", "all_gather", 4].size_bytes == 4 * 100  # what is no expert, over all ranks
    assert sent["communication", "all_gather", 2].size_bytes == 4 * 400  # half of the experts, over their holders
    assert sent["communication", "all_gather", 2].rank_stride == 2
    again = collectives(profile, shape, replace(load, memory=Memory(activation_checkpointing="full")))
    assert {each.count for each in again if each.part == "compute"} == {6 * 2}
