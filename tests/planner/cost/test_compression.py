"""What is squeezed on the wire, and which plans have a wire for it."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, gpus, line

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan, prove_plan
from gangline.spec.config.line import MeshTable
from gangline.spec.config.rules_train import train_rules
from gangline.spec.config.structure import bound_problems
from gangline.spec.data_source import DataSource
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Compression


def problems(**train):
    table = line(**train).train
    return {each.key: str(each) for each in (*bound_problems(table, "train"), *train_rules(table))}


def plan_of(asked, inventory):
    choice = choose_plan(asked, SITE, inventory, SMALL)
    return make_plan(asked, choice, run="demo-0000000-aaaaaa", run_prefix="runs/demo/0/0", data=DataSource())


def test_plans_without_replicas_are_left_out_with_the_reason():
    choice = choose_plan(line(compression=Compression(kind="int8")), SITE, cpu(2), SMALL)
    assert choice.name == "ddp-2"
    others = {each.name: each.reason for each in choice.candidates[1:]}
    assert "there is one replica" in others["fsdp-2"]


def test_nothing_to_squeeze_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"^train\.compression\.kind = topk .* one replica; two ranks or more"):
        choose_plan(line(compression=Compression(kind="topk")), SITE, cpu(1), SMALL)


@pytest.mark.parametrize("strategy", ["fsdp", "zero2", "tp", "none"])
def test_compression_between_replicas_wants_replicas(strategy):
    asked = {"strategy": strategy, "ranks": 1 if strategy == "none" else 2}
    assert "dp_replicate" in problems(compression=Compression(kind="powersgd"), **asked)["train.compression.kind"]
    assert "train.compression.kind" not in problems(compression=Compression(kind="bf16"), **asked)


@pytest.mark.parametrize("train", [{"strategy": "none"}, {"strategy": "explicit", "mesh": MeshTable(pp=2)}])
def test_a_precision_of_averages_is_refused_where_nothing_is_averaged(train):
    asked = line(compression=Compression(kind="bf16"), batch=64, **train)
    with pytest.raises(
        ConfigError, match=r"^train\.compression\.kind = bf16 is what ranks average gradients in, and no"
    ):
        choose_plan(asked, SITE, gpus(2), SMALL)


def test_a_line_that_leaves_the_plan_open_may_name_it():
    """On one rank it says nothing; the same line on two is what it is for."""
    assert choose_plan(line(compression=Compression(kind="bf16")), SITE, cpu(1), SMALL).name == "none"


def test_compression_by_parameter_is_refused_where_parameters_are_cut():
    mesh = MeshTable(dp_replicate=2, tp=2)
    found = problems(strategy="explicit", ranks=4, mesh=mesh, compression=Compression(kind="topk"))
    assert "where the model is cut" in found["train.compression.kind"]


def test_drifting_replicas_need_their_numbers_and_others_must_not_have_them():
    assert problems(strategy="diloco", ranks=2).keys() == {
        "train.compression.outer_steps",
        "train.compression.outer_lr",
    }
    assert problems(strategy="local_sgd", ranks=2, compression=Compression(outer_steps=4)) == {}
    assert problems(strategy="ddp", ranks=2, compression=Compression(outer_steps=4)).keys() == {
        "train.compression.outer_steps"
    }
    rated = Compression(outer_steps=4, outer_lr=0.7)
    assert problems(strategy="local_sgd", ranks=2, compression=rated).keys() == {"train.compression.outer_lr"}
    assert problems(strategy="diloco", ranks=2, compression=replace(rated, kind="int8")) == {}
    assert problems(strategy="diloco", ranks=2, compression=replace(rated, outer_momentum=1.0)).keys() == {
        "train.compression.outer_momentum"
    }


def test_drifting_replica_is_a_node_or_a_rank():
    asked = line(strategy="diloco", compression=Compression(outer_steps=8, outer_lr=0.7))
    assert plan_of(asked, cpu(2)).mesh == Mesh(dp_replicate=2)
    plan = plan_of(asked, gpus(8, nodes=2))
    assert (plan.mesh, plan.name) == (Mesh(dp_replicate=2, dp_shard=8), "diloco-2x8")
    with pytest.raises(ConfigError, match="wants two ranks or more, found 1"):
        choose_plan(asked, SITE, cpu(1), SMALL)


@pytest.mark.parametrize(
    "asked",
    [
        line(strategy="ddp", ranks=2, compression=Compression(kind="topk")),
        line(strategy="local_sgd", ranks=2, compression=Compression(outer_steps=4)),
    ],
)
def test_second_plan_exchanges_whole_gradients_after_every_step(asked):
    plan = plan_of(asked, cpu(2))
    second = prove_plan(plan, "auto", "runs/demo/0/0/checkpoints/step-00000120", 20)
    assert second.compression == Compression()
    assert second.strategy in ("ddp", "fsdp")
