"""The plan of a line's matrix rule before the run: what it counts is what a rank keeps."""

from dataclasses import replace

import pytest
import torch
from tests.planner.cases import RATES, TRACED, cpu, line, step_load_of
from tests.train.parallel.deep import TASKS
from torch import nn

from gangline.errors import ConfigError
from gangline.line.stages.optimizer_plan import optimizer_plans, routing, with_matrix_work
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.costs import CPU
from gangline.optim.plan.explain import explain, explain_stages
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.routing import named_parameters, partition_params
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.planner.cost.memory import rank_parts
from gangline.planner.cost.traffic import collectives
from gangline.planner.forecast import formula_of
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.pipeline import stage_ranges
from gangline.planner.layouts.schedules import num_stages, stages_of
from gangline.planner.pool import open_pool
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import Setting
from gangline.spec.config.site import Site
from gangline.spec.mesh import Mesh
from gangline.spec.profile import ModelProfile, PipelinePieces
from gangline.train.parallel.model_parts import find_blocks, find_embed_and_head, kept_of, pipeline_pieces
from gangline.train.parallel.pipeline.stage_module import part_of
from gangline.train.task import ParallelHints

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
    problem = PlanProblem(line=under({"rule": rule}), pool=open_pool(Site(), cpu(2)), profile=profile)
    counted = problem.optimizer.moment_bytes * profile.parameters + profile.matrix_work.owner_bytes
    steps = 2 * 4 if rule != "muon" else 0  # a count for each matrix
    assert counted == kept_bytes(model, rule) + steps


def parts_of(rule, shape):
    profile = replace(TRACED, matrix_work=replace(model_and_profile(rule)[1].matrix_work, owner_bytes=8_000))
    load = step_load_of()
    without = rank_parts(replace(profile, matrix_work=None), shape, load).optimizer
    return rank_parts(profile, shape, load).optimizer - without


def test_owner_state_is_on_one_rank_of_all_that_hold_a_matrix_and_on_each_replica_that_drifts():
    assert parts_of("soap", Layout("ddp", Mesh(dp_replicate=4))) == 2_000
    assert parts_of("soap", Layout("hsdp", Mesh(dp_replicate=2, dp_shard=2))) == 2_000
    assert parts_of("soap", Layout("local_sgd", Mesh(dp_replicate=4))) == 8_000


def test_hosts_exchange_parts_twice_and_owners_send_updates_to_copies():
    work = replace(model_and_profile("muon")[1].matrix_work, parameters=1_000, element_bytes=4)
    load = step_load_of(micro_batch=1, micro_batches=1, precision="fp32")
    profile, shape = replace(TRACED, matrix_work=work), Layout("hsdp", Mesh(dp_replicate=2, dp_shard=4))
    found = [each for each in collectives(profile, shape, load) if each.part == "optimizer"]
    assert [(each.kind, each.ranks, each.size_bytes, each.count) for each in found] == [
        ("all_to_all", 4, 500.0, 2), ("all_gather", 2, 1_000.0, 1),
    ]  # fmt: skip


def test_updates_take_the_time_of_an_equal_share_or_of_the_largest_matrix():
    def seconds(largest):
        work = replace(model_and_profile("muon")[1].matrix_work, flops=8e9, largest_flops=largest, parameters=0)
        profile = replace(TRACED, matrix_work=work)
        problem = PlanProblem(line=line(), pool=open_pool(Site(), cpu(2)), profile=profile, rates=RATES)
        found = formula_of(problem, Layout("ddp", Mesh(dp_replicate=2)), Setting(micro_batch=8, precision="fp32"))
        return next(term.seconds for term in found.terms if term.part == "optimizer")

    assert seconds(1e9) == seconds(4e9), "two ranks have an equal share of 4e9"
    assert seconds(8e9) - seconds(4e9) == pytest.approx(2 * (seconds(6e9) - seconds(4e9)))
    assert seconds(6e9) > seconds(4e9)


def test_owners_are_those_of_the_shape():
    asked, (model, profile) = under({"rule": "muon"}), model_and_profile("muon")
    [plan] = optimizer_plans(asked, profile, Layout("hsdp", Mesh(dp_replicate=2, dp_shard=4)), "cpu")
    assert (plan.ranks, plan.hosts, len(plan.matrices)) == (2, 4, 2)
    [alone] = optimizer_plans(asked, profile, Layout("none", Mesh()), "cpu")
    ran = MatrixOptimizer(partition_params(model), rule=Muon(), options=PlanOptions(device=CPU))
    assert alone.plan_hash == ran.executors[0].plan.plan_hash
    assert optimizer_plans(line(), profile, Layout("none", Mesh()), "cpu") == ()
    assert [each.kind for each in routing(asked, profile)] == ["elementwise", "matrix", "elementwise", "matrix"]


def test_each_copy_that_repeats_all_is_the_only_owner():
    table = {"rule": "muon", "copies": "repeat"}
    shape = Layout("hsdp", Mesh(dp_replicate=2, dp_shard=2))
    [plan] = optimizer_plans(under(table), model_and_profile("muon")[1], shape, "cpu")
    assert (plan.ranks, plan.hosts) == (1, 2)
    assert "each copy computes all" in explain(plan)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved_1f1b", "zbv"])
def test_each_pipeline_rank_plans_the_matrices_of_its_stages(schedule):
    model, ranks = TASKS.Deep(layers=7), 2
    blocks = dict(find_blocks(model, ParallelHints()))
    ends = find_embed_and_head(model, list(blocks), ParallelHints(embed="embed", head="head"))
    pieces = pipeline_pieces(model, blocks, ends)
    named = tuple(each for each, _ in named_parameters(model))
    asked, profile = under({"rule": "muon"}), ModelProfile(parameters=1, named=named, pieces=pieces)
    plans = optimizer_plans(asked, profile, Layout("pp", Mesh(pp=ranks)), "cpu", pp_schedule=schedule)
    ranges = stage_ranges(pieces, num_stages(schedule, ranks))
    for rank, plan in enumerate(plans):
        held = set()
        for stage in stages_of(schedule, ranks, rank):
            kept = kept_of(
                [list(blocks)[block] for block in ranges[stage]], ends, is_first=stage == 0,
                is_last=stage == len(ranges) - 1,
            )  # fmt: skip
            held |= {name for name, _ in part_of(TASKS.Deep(layers=7), kept).named_parameters()}
        assert {each.matrix.fqn for each in plan.matrices} == {
            each.name for each in named if each.name in held and len(each.shape) == 2
        }
    assert len(plans) == ranks
    assert "the slowest, rank" in explain_stages(plans)


def test_stages_of_a_model_whose_pieces_are_unknown_are_not_guessed():
    asked, (_, profile) = under({"rule": "muon"}), model_and_profile("muon")
    assert optimizer_plans(asked, profile, Layout("pp", Mesh(pp=2)), "cpu") == ()
    pieces = PipelinePieces(
        blocks=("1", "2"), block_parameters=(390, 240), embed=(), embed_parameters=0, head=(), head_parameters=0
    )
    known = optimizer_plans(asked, replace(profile, pieces=pieces), Layout("pp", Mesh(pp=2)), "cpu")
    assert [[each.matrix.fqn for each in plan.matrices] for plan in known] == [["1.weight"], ["2.weight"]]
    other = replace(pieces, blocks=("1", "elsewhere"))
    assert optimizer_plans(asked, replace(profile, pieces=other), Layout("pp", Mesh(pp=2)), "cpu") == ()


def test_a_measured_table_decides_owners_and_seconds():
    rows = [
        {"rule": "muon/standard", "rows": rows, "columns": columns, "batch": 1, "dtype": "bfloat16", "seconds": seconds,
         "refresh_seconds": 0.0}
        for rows, columns, seconds in ((12, 30, 0.25), (8, 30, 4.0))
    ]  # fmt: skip
    asked = under({"rule": "muon", "cost": {"format": 1, "device": "a GPU", "torch": "2.15.0", "rows": rows}})
    profile = with_matrix_work(asked, replace(model_and_profile("muon")[1], matrix_work=None))
    assert (profile.matrix_work.seconds, profile.matrix_work.largest_seconds) == (4.25, 4.0)
    [plan] = optimizer_plans(asked, profile, Layout("ddp", Mesh(dp_replicate=2)), "cuda")
    assert sorted(plan.loads) == [0.25, 4.0]
    assert "costs    measured, 2 of 2 shapes: a GPU, torch 2.15.0" in explain(plan)
    [plain] = optimizer_plans(under({"rule": "muon"}), profile, Layout("ddp", Mesh(dp_replicate=2)), "cuda")
    assert "by operations and an assumed rate" in explain(plain)


def test_a_route_that_matches_nothing_is_refused_before_the_run():
    table = {"rule": "muon", "route": [{"match": "*.fc1.weight", "split": "gate_up"}]}
    with pytest.raises(ConfigError, match=r"fc1.weight"):
        with_matrix_work(under(table), model_and_profile("muon")[1])


def test_a_task_with_an_optimizer_of_its_own_has_no_matrix_rule():
    profile = replace(model_and_profile("muon")[1], builds_optimizer=True, matrix_work=None)
    assert with_matrix_work(under({"rule": "muon"}), profile) is profile
