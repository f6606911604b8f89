"""Matrix rules in formula plans: state, products and messages are those that plans of a traced model count."""

from dataclasses import replace

import pytest
from tests.planner.cases import line, step_load_of
from tests.planner.formula.reference import A100, EIGHT, R1, SPACE

from gangline.line.stages.optimizer_plan import block_matrices, with_matrix_work
from gangline.planner.cost.memory import rank_parts
from gangline.planner.cost.optimizer import ADAMW, OptimizerModel, optimizer_model
from gangline.planner.cost.traffic import collectives
from gangline.planner.formula.evaluate import evaluate
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.formula.memory import state_memory
from gangline.planner.formula.step_time import exchange_seconds, update_seconds
from gangline.planner.layouts.layout import Layout, WrappedLayout
from gangline.spec.mesh import Mesh
from gangline.spec.strategies import DDP, FSDP, ZERO1
from gangline.spec.transformer import Transformer

MIXTURE = Transformer(layers=3, width=64, heads=4, feed_width=96, vocabulary=100, sequence=32, gated=False, experts=5,
                      active_experts=2)  # fmt: skip
FLAT = replace(R1, hardware=replace(A100, links=replace(A100.links, inside=40e9, across=40e9)))
LAYOUTS = [
    ("ddp", WrappedLayout.of(mesh=Mesh(dp_replicate=16), wrapping=DDP)),
    ("zero1", WrappedLayout.of(mesh=Mesh(dp_replicate=16), wrapping=ZERO1)),
    ("fsdp", WrappedLayout.of(mesh=Mesh(dp_shard=16), wrapping=FSDP)),
    ("hsdp", WrappedLayout.of(mesh=Mesh(dp_replicate=2, dp_shard=8), wrapping=FSDP)),
]


BY_COPIES = [*(("share", *each) for each in LAYOUTS), *(("repeat", *each) for each in LAYOUTS if each[0] != "zero1")]


def profile_under(rule, model=EIGHT, copies="share"):
    return with_matrix_work(replace(line(), optimizer={"rule": rule, "copies": copies}), formula_profile(model))


def optimizer_under(rule, copies="share"):
    return optimizer_model({"rule": rule}, profile_under(rule, copies=copies))


@pytest.mark.parametrize("model", [EIGHT, MIXTURE])
def test_matrices_are_all_of_a_block_but_its_router_and_norms(model):
    found = sum(each.elements.value for each in block_matrices(model))
    assert found == model.layers * (model.block_parameters - model.router_parameters - model.norm_parameters)
    assert profile_under("muon", model).matrix_work.parameters == found


@pytest.mark.parametrize("rule", ["muon", "shampoo", "soap"])
@pytest.mark.parametrize(("copies", "strategy", "layout"), BY_COPIES)
def test_state_of_a_rank_is_that_of_a_traced_plan(rule, copies, strategy, layout):
    optimizer, profile = optimizer_under(rule, copies), profile_under(rule, copies=copies)
    *_, kept = state_memory(replace(R1, optimizer=optimizer), layout, EIGHT.parameters, sync="last")
    shape = Layout(strategy=strategy, mesh=layout.mesh)
    assert kept == pytest.approx(
        rank_parts(profile, shape, step_load_of(moment_bytes=optimizer.moment_bytes)).optimizer
    )


@pytest.mark.parametrize(("copies", "strategy", "layout"), BY_COPIES)
def test_messages_of_matrices_are_those_of_a_traced_plan(copies, strategy, layout):
    optimizer, profile = optimizer_under("muon", copies), profile_under("muon", copies=copies)
    load = step_load_of(micro_batch=4, micro_batches=4, precision="bf16")
    messages = collectives(profile, Layout(strategy=strategy, mesh=layout.mesh), load)
    wire = sum(each.wire_bytes for each in messages if each.part == "optimizer")
    question = replace(FLAT, optimizer=optimizer)
    own = update_seconds(question, layout, EIGHT.parameters)
    sharing = 16 if strategy in ("zero1", "fsdp") else layout.shards
    own -= optimizer.streamed_bytes(EIGHT.parameters / sharing) / 2e12 + optimizer.matrix_seconds(layout.mesh, 140e12)
    if strategy == "zero1":  # deals out new parameters, which a traced plan books under the optimizer
        copies = replace(layout, wrapping=DDP)
        own += exchange_seconds(question, layout, EIGHT.parameters, load, blocks=32)
        own -= exchange_seconds(question, copies, EIGHT.parameters, load, blocks=32)
    assert own == pytest.approx(wire / 40e9)


def test_copies_that_repeat_all_have_all_state_and_send_nothing():
    share, repeat = optimizer_under("soap"), optimizer_under("soap", "repeat")
    mesh = Mesh(dp_replicate=16)
    assert (share.owners(mesh), repeat.owners(mesh)) == (16, 1)
    kept = [
        state_memory(replace(R1, optimizer=each), WrappedLayout.of(mesh=mesh, wrapping=DDP), 0.0, sync="last")[2]
        for each in (share, repeat)
    ]
    assert kept[1] == 16 * kept[0] == repeat.owner_bytes
    assert repeat.matrix_seconds(mesh, 1e12) == pytest.approx(16 * share.matrix_seconds(mesh, 1e12))
    assert repeat.update_bytes(mesh) == 0


def test_one_large_matrix_is_one_ranks_work_however_many_there_are():
    work = replace(profile_under("muon").matrix_work, flops=8e12, largest_flops=1e12)
    assert OptimizerModel(matrix_work=work).matrix_seconds(Mesh(dp_shard=4), 1e12) == 2
    assert OptimizerModel(matrix_work=work).matrix_seconds(Mesh(dp_shard=1000), 1e12) == 1
    assert ADAMW.matrix_seconds(Mesh(dp_shard=4), 1e12) == 0


def test_the_search_counts_the_rule():
    space = replace(SPACE, tp=(1,), pp=(1,), wrappings=(FSDP,))
    plain, muon = (
        evaluate(replace(R1, space=space, optimizer=each)).plans[0] for each in (ADAMW, optimizer_under("muon"))
    )
    assert muon.memory.optimizer < plain.memory.optimizer
    assert muon.parts.optimizer > plain.parts.optimizer
