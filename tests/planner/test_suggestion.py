"""A refusal names the nearest value of a key, and of several keys the one whose plan is the fastest."""

from dataclasses import replace

import pytest
from tests.planner.cases import gpus, line, model_of
from tests.planner.transformers import H100, ONE, transformer

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.suggestion import FittingPlan, suggest_change
from gangline.spec.config.line import MemoryTable, MeshTable, PlanTable
from gangline.spec.config.site import Site

FIXED = MemoryTable(activation_checkpointing="none", loss_chunks=1, offload="none")


def suggestion(asked, inventory, profile, site=H100):
    with pytest.raises(ConfigError) as refusal:
        choose_plan(asked, site, inventory, profile)
    return str(refusal.value).rsplit("; ", 1)[1]


def only(wanted, seconds=None):
    """Fits where `wanted` says so."""
    return lambda line, inventory: FittingPlan("ddp-8", seconds) if wanted(line, inventory) else None


def test_a_number_comes_down_no_further_than_it_must():
    asked = line(batch=96, micro=12, memory=FIXED)
    for most, said in ((6, 6), (5, 4), (1, 1)):
        found = suggest_change(asked, gpus(8), only(lambda line, _, most=most: line.train.mesh.micro_batch <= most))
        assert found == f"train.mesh.micro_batch = {said} would fit, as ddp-8"


def test_of_several_keys_the_fastest_plan_is_named():
    seconds = {"passes": 2.0, "again": 1.5}

    def fits(changed, _):
        if changed.train.mesh.micro_batch != 8:
            return FittingPlan("ddp-8", seconds["passes"])
        return (
            FittingPlan("ddp-8", seconds["again"]) if changed.train.memory.activation_checkpointing == "full" else None
        )

    asked = line(batch=64, micro=8, memory=FIXED)
    assert suggest_change(asked, gpus(8), fits) == (
        'train.memory.activation_checkpointing = "full" would fit, as ddp-8, 1.5 s a step by forecast'
    )
    seconds["passes"] = 1.0
    assert suggest_change(asked, gpus(8), fits).startswith("train.mesh.micro_batch = 4 would fit")


def test_training_something_else_is_named_only_where_no_change_of_the_line_is_enough():
    def fits(changed, _):
        if changed.train.precision == "bf16":
            return FittingPlan("ddp-8", 0.1, 31e9)
        return FittingPlan("fsdp-8") if changed.train.memory.offload == "auto" else None

    asked = line(batch=64, precision="fp32", memory=FIXED)
    assert suggest_change(asked, gpus(8), fits) == 'train.memory.offload = "auto" would fit, as fsdp-8'
    loose = replace(asked, train=replace(asked.train, memory=replace(FIXED, offload="cpu")))
    assert suggest_change(loose, gpus(8), fits) == (
        'to train something else, train.precision = "bf16" as ddp-8 with 31 GB a rank, 100 ms a step by forecast '
        "would fit"
    )


def test_rule_that_keeps_less_is_named_with_its_bytes_next_to_more_nodes():
    def fits(changed, there):
        less = changed.optimizer.get("elementwise", {}).get("rule") == "sgd"
        return FittingPlan("ddp-8", None, 20e9) if less or there.num_nodes >= 3 else None

    asked = replace(line(batch=64, memory=FIXED), optimizer={"elementwise": {"rule": "adamw", "lr": 1e-4}})
    assert suggest_change(asked, gpus(8), fits) == (
        "3 nodes like these would fit it, or to train something else, optimizer.elementwise = "
        '{ rule = "sgd", momentum = 0.9 }, 4 bytes a parameter where there are 8, as ddp-8 with 20 GB a rank would fit'
    )
    plain = replace(asked, optimizer={"elementwise": {"rule": "sgd"}})
    assert suggest_change(plain, gpus(8), lambda *_: None) == ""


def test_gpus_without_bf16_are_offered_fp16():
    """Asking them for bf16 is refused, and that would hide what does not fit."""
    old = gpus(8)
    old = replace(old, devices=tuple(replace(each, has_bf16=False) for each in old.devices))
    asked = line(batch=64, precision="fp32", memory=FIXED)
    found = suggest_change(asked, old, only(lambda line, _: line.train.precision == "fp16"))
    assert found == 'to train something else, train.precision = "fp16" as ddp-8 would fit'
    assert "no bf16" not in suggestion(asked, old, model_of(2000))


def test_state_of_a_real_model_fits_by_a_rule_that_keeps_less():
    """AdamW's 16 bytes a parameter fill 1.2 times what one GPU may hold, momentum's 12 then 0.9 times."""
    alone = replace(gpus(1), memory_bytes=10**9)
    found = suggestion(line(batch=8, micro=1), alone, model_of(1.2), Site())
    assert found == (
        "2 nodes like these would fit it, or to train something else, optimizer.elementwise = "
        '{ rule = "sgd", momentum = 0.9 }, 4 bytes a parameter where there are 8, as none with 62 GB a rank would fit'
    )


def test_nodes_come_last_and_the_fewest_are_named():
    assert suggest_change(line(batch=64), gpus(8), only(lambda _, there: there.num_nodes >= 5)) == (
        "5 nodes like these would fit it"
    )
    assert suggest_change(line(batch=64), gpus(8), only(lambda *_: False)) == ""


def test_rates_decide_between_changes_that_a_real_model_has():
    """Sixteen samples of 4,096 tokens at once leave no room; smaller passes compute nothing again."""
    profile = transformer(**ONE, sequence=4096)
    asked = replace(line(strategy="fsdp", batch=128, micro=16, memory=FIXED), plan=PlanTable())
    found = suggestion(asked, gpus(8), profile)
    assert found.startswith("train.mesh.micro_batch = ")
    assert found.endswith("a step by forecast")
    named = int(found.split(" = ")[1].split()[0])
    assert choose_plan(
        replace(asked, train=replace(asked.train, mesh=MeshTable(micro_batch=named))), H100, gpus(8), profile
    )
    larger = replace(asked, train=replace(asked.train, mesh=MeshTable(micro_batch=2 * named)))
    assert suggestion(larger, gpus(8), profile).startswith(f"train.mesh.micro_batch = {named} would fit")
