"""A refusal names the nearest value of a key, and of several keys the one whose plan is the fastest."""

from dataclasses import replace

import pytest
from tests.planner.cases import gpus, line
from tests.planner.transformers import H100, ONE, transformer

from gangline.errors import ConfigError
from gangline.planner.selection.choice import choose_plan
from gangline.planner.selection.smallest_change import FittingPlan, smallest_change
from gangline.spec.config.line import MemoryTable, MeshTable, PlanTable

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
        found = smallest_change(asked, gpus(8), only(lambda line, _, most=most: line.train.mesh.micro_batch <= most))
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
    assert smallest_change(asked, gpus(8), fits) == (
        'train.memory.activation_checkpointing = "full" would fit, as ddp-8, 1.5 s a step by forecast'
    )
    seconds["passes"] = 1.0
    assert smallest_change(asked, gpus(8), fits).startswith("train.mesh.micro_batch = 4 would fit")


def test_other_numbers_are_trained_only_where_no_other_change_is_enough():
    def fits(changed, _):
        if changed.train.precision == "bf16":
            return FittingPlan("ddp-8", 0.1)
        return FittingPlan("fsdp-8") if changed.train.memory.offload == "auto" else None

    asked = line(batch=64, precision="fp32", memory=FIXED)
    assert smallest_change(asked, gpus(8), fits).startswith('train.memory.offload = "auto"')
    loose = replace(asked, train=replace(asked.train, memory=replace(FIXED, offload="cpu")))
    assert smallest_change(loose, gpus(8), fits) == (
        'train.precision = "bf16" would fit, as ddp-8, 100 ms a step by forecast'
    )


def test_nodes_come_last_and_the_fewest_are_named():
    assert smallest_change(line(batch=64), gpus(8), only(lambda _, there: there.num_nodes >= 5)) == (
        "5 nodes like these would fit it"
    )
    assert smallest_change(line(batch=64), gpus(8), only(lambda *_: False)) == ""


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
