"""The plan of a line's matrix rule before the run: what it counts is what a rank keeps."""

from dataclasses import replace

import pytest
import torch
from tests.planner.cases import RATES, TRACED, cpu, line
from torch import nn

from gangline.errors import ConfigError
from gangline.line.stages.optimizer_plan import optimizer_plan, routing, with_matrix_work
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.routing import named_parameters, partition_params
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.planner.forecast.memory import rank_parts
from gangline.planner.forecast.shape_forecast import ExecutionOptions, ForecastEvidence, formula_of
from gangline.planner.forecast.traffic import PassLoad, collectives
from gangline.planner.shapes.device_pool import open_pool
from gangline.planner.shapes.shape import Shape
from gangline.spec.config.site import Site
from gangline.spec.mesh import Mesh
from gangline.spec.profile import ModelProfile

RULES = {"muon": Muon, "shampoo": Shampoo, "soap": Soap}


def under(table):
    """A line with such an `[optimizer]`."""
    return replace(line(), optimizer=table)


def model_and_profile(rule):
    """A small model, and what is known of it under the rule."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 30), nn.Linear(30, 8, bias=False))
    named = tuple(each for each, _ in named_parameters(model))
    size = sum(each.numel() for each in model.parameters())
    profile = with_matrix_work(under({"rule": rule}), ModelProfile(parameters=size, named=named))
    return model, profile


def kept_bytes(model, rule):
    """Of state after a step, without counts of steps."""
    optimizer = MatrixOptimizer(partition_params(model), rule=RULES[rule]())
    for each in model.parameters():
        each.grad = torch.randn_like(each)
    optimizer.step()
    return sum(each.nbytes for state in optimizer.state.values() for each in state.values() if each.numel() > 1)


@pytest.mark.parametrize("rule", RULES)
def test_the_planner_counts_the_state_that_one_rank_keeps(rule):
    model, profile = model_and_profile(rule)
    evidence = ForecastEvidence(line=under({"rule": rule}), pool=open_pool(Site(), cpu(2)), profile=profile)
    counted = evidence.moment_bytes * profile.parameters + profile.matrix_work.owner_bytes
    steps = 2 * 4 if rule != "muon" else 0  # a count for each matrix
    assert counted == kept_bytes(model, rule) + steps


def parts_of(rule, shape):
    profile = replace(TRACED, matrix_work=replace(model_and_profile(rule)[1].matrix_work, owner_bytes=8_000))
    return rank_parts(profile, shape).optimizer - rank_parts(replace(profile, matrix_work=None), shape).optimizer


def test_owner_state_is_on_one_rank_of_all_that_hold_a_matrix_and_on_each_replica_that_drifts():
    assert parts_of("soap", Shape("ddp", Mesh(dp_replicate=4))) == 2_000
    assert parts_of("soap", Shape("hsdp", Mesh(dp_replicate=2, dp_shard=2))) == 2_000
    assert parts_of("soap", Shape("local_sgd", Mesh(dp_replicate=4))) == 8_000


def test_hosts_exchange_parts_twice_and_owners_send_updates_to_copies():
    work = replace(model_and_profile("muon")[1].matrix_work, parameters=1_000, element_bytes=4)
    load = PassLoad(micro_batch=1, micro_batches=1, precision="fp32")
    profile, shape = replace(TRACED, matrix_work=work), Shape("hsdp", Mesh(dp_replicate=2, dp_shard=4))
    found = [each for each in collectives(profile, shape, load) if each.part == "optimizer"]
    assert [(each.kind, each.ranks, each.size_bytes, each.count) for each in found] == [
        ("all_to_all", 4, 500.0, 2), ("all_gather", 2, 1_000.0, 1),
    ]  # fmt: skip


def test_updates_take_the_time_of_an_equal_share_or_of_the_largest_matrix():
    def seconds(largest):
        work = replace(model_and_profile("muon")[1].matrix_work, flops=8e9, largest_flops=largest, parameters=0)
        profile = replace(TRACED, matrix_work=work)
        evidence = ForecastEvidence(line=line(), pool=open_pool(Site(), cpu(2)), profile=profile, rates=RATES)
        found = formula_of(
            evidence, Shape("ddp", Mesh(dp_replicate=2)), ExecutionOptions(micro_batch=8, precision="fp32")
        )
        return next(term.seconds for term in found.terms if term.part == "optimizer")

    assert seconds(1e9) == seconds(4e9), "two ranks have an equal share of 4e9"
    assert seconds(8e9) - seconds(4e9) == pytest.approx(2 * (seconds(6e9) - seconds(4e9)))
    assert seconds(6e9) > seconds(4e9)


def test_owners_are_those_of_the_shape_and_stages_plan_their_own():
    asked, (_, profile) = under({"rule": "muon"}), model_and_profile("muon")
    plan = optimizer_plan(asked, profile, Shape("hsdp", Mesh(dp_replicate=2, dp_shard=4)), "cpu")
    assert (plan.ranks, plan.hosts, len(plan.matrices)) == (2, 4, 2)
    assert optimizer_plan(asked, profile, Shape("pp", Mesh(pp=2)), "cpu") is None
    assert optimizer_plan(line(), profile, Shape("none", Mesh()), "cpu") is None
    assert [each.kind for each in routing(asked, profile)] == ["elementwise", "matrix", "elementwise", "matrix"]


def test_a_route_that_matches_nothing_is_refused_before_the_run():
    table = {"rule": "muon", "route": [{"match": "*.fc1.weight", "split": "gate_up"}]}
    with pytest.raises(ConfigError, match=r"fc1.weight"):
        with_matrix_work(under(table), model_and_profile("muon")[1])


def test_a_task_with_an_optimizer_of_its_own_has_no_matrix_rule():
    profile = replace(model_and_profile("muon")[1], builds_optimizer=True, matrix_work=None)
    assert with_matrix_work(under({"rule": "muon"}), profile) is profile
