"""How many ranks share a layer: a node's, as far as the model can be cut, and never one that it cannot."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, gpus, line

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.planner.proof import make_proof_plan
from gangline.spec.config.line import MeshTable
from gangline.spec.data_source import DataSource
from gangline.spec.mesh import Mesh


def cut_into(cuts):
    return replace(SMALL, tensor_cuts=cuts)


@pytest.mark.parametrize(
    ("count", "nodes", "cuts", "name", "mesh"),
    [
        (8, 1, 32, "tp-8", Mesh(tp=8)),
        (8, 4, 32, "tp-4x8", Mesh(dp_shard=4, tp=8)),
        (8, 1, 12, "tp-2x4", Mesh(dp_shard=2, tp=4)),
        (8, 2, None, "tp-2x8", Mesh(dp_shard=2, tp=8)),
    ],
)
def test_peers_share_a_node_and_shards_lie_over_the_rest(count, nodes, cuts, name, mesh):
    choice = choose_plan(line(strategy="tp", batch=64), SITE, gpus(count, nodes), cut_into(cuts))
    assert (choice.name, choice.mesh, choice.strategy) == (name, mesh, "tp")


@pytest.mark.parametrize(
    ("cuts", "reason"),
    [
        (0, r'train\.strategy: "tp": wanted rules in hints\.tensor of the task, found none'),
        (3, r"wanted a degree that divides the 2 ranks of a node and 3, .* found none above 1"),
    ],
)
def test_model_that_cannot_be_cut_is_refused_before_anything_is_queued(cuts, reason):
    with pytest.raises(ConfigError, match=reason):
        choose_plan(line(strategy="tp"), SITE, cpu(2), cut_into(cuts))


@pytest.mark.parametrize(
    ("cuts", "reason"),
    [
        (6, r"train\.mesh\.tp: wanted a divisor of 6, .* found 4; 1, 2, 3, 6 work"),
        (0, r"train\.mesh\.tp = 4: wanted rules in hints\.tensor"),
    ],
)
def test_degree_that_the_model_cannot_be_cut_into_is_refused_with_those_that_work(cuts, reason):
    with pytest.raises(ConfigError, match=reason):
        choose_plan(line(strategy="explicit", mesh=MeshTable(tp=4)), SITE, gpus(4), cut_into(cuts))


@pytest.mark.parametrize(("nodes", "tp", "reason"), [(2, 16, "found 16 where a node has 8 ranks; 1, 2, 4, 8 work")])
def test_peers_of_a_layer_on_several_nodes_are_refused(nodes, tp, reason):
    asked = line(strategy="explicit", mesh=MeshTable(tp=tp))
    with pytest.raises(ConfigError, match=rf"train\.mesh\.tp: wanted peers on one node, {reason}"):
        choose_plan(asked, SITE, gpus(8, nodes), cut_into(64))


@pytest.mark.parametrize(
    ("cuts", "reason"),
    [
        (0, r'train\.strategy: "3d": wanted rules in hints\.tensor of the task, found none'),
        (3, r'train\.strategy: "3d": wanted a degree that divides the 2 ranks of a node and 3'),
    ],
)
def test_three_axes_want_a_model_that_can_be_cut(cuts, reason):
    with pytest.raises(ConfigError, match=reason):
        choose_plan(line(strategy="3d", batch=64), SITE, gpus(8), replace(SMALL, blocks=16, tensor_cuts=cuts))


def test_one_rank_shares_a_layer_with_no_other():
    with pytest.raises(ConfigError, match="wants two ranks or more, found 1"):
        choose_plan(line(strategy="tp", ranks=1), SITE, cpu(2), cut_into(4))


def test_peers_see_the_same_samples():
    asked = line(strategy="explicit", mesh=MeshTable(dp_shard=2, tp=2), batch=6)
    plan = make_plan(asked, choose_plan(asked, SITE, gpus(4), cut_into(4)), run="r", run_prefix="p", data=DataSource())
    assert (plan.name, plan.strategy) == ("tp-2x2", "tp")
    assert (plan.micro_batch, plan.accumulation) == (3, 1)


def test_second_plan_of_cut_modules_holds_them_whole():
    asked = line(strategy="tp", batch=64)
    plan = make_plan(asked, choose_plan(asked, SITE, gpus(8), cut_into(8)), run="r", run_prefix="p", data=DataSource())
    assert make_proof_plan(plan, inventory=gpus(8)).name == "ddp-8"
    large = replace(plan, forecast=replace(plan.forecast, parameters=20 * 10**9))
    assert make_proof_plan(large, inventory=gpus(8)).name == "fsdp-8"


@pytest.mark.parametrize("axis", ["pp", "cp", "ep"])
@pytest.mark.parametrize("degrees", [None, 2])
def test_axis_along_which_no_gang_can_cut_the_model_is_refused_before_anything_is_queued(axis, degrees):
    asked = line(strategy=axis, batch=64)
    if degrees:
        mesh = MeshTable(**{axis: 2, "dp_shard": 2 if axis == "ep" else 1})
        asked = line(strategy="explicit", mesh=mesh, batch=64)
    with pytest.raises(ConfigError, match="the hints are empty"):
        choose_plan(asked, SITE, cpu(2), replace(SMALL, blocks=4, obstacles={axis: "the hints are empty"}))


@pytest.mark.parametrize(
    ("strategy", "profile", "reason"),
    [
        ("tp", cut_into(3), r'prove\.plan: train\.strategy: "tp": wanted a degree that divides the 2 ranks'),
        ("ep", replace(SMALL, obstacles={"ep": "no experts"}), r"prove\.plan: no experts"),
    ],
)
def test_proof_under_a_plan_that_the_model_cannot_take_is_refused(strategy, profile, reason):
    asked = line(batch=16)
    plan = make_plan(asked, choose_plan(asked, SITE, cpu(2), profile), run="r", run_prefix="p", data=DataSource())
    with pytest.raises(ConfigError, match=reason):
        make_proof_plan(plan, strategy, inventory=cpu(2), profile=profile)
