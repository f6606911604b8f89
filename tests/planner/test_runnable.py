"""What the runtime does not carry out is refused before anything is spent, never ignored."""

from dataclasses import replace

import pytest
from tests.planner.cases import SITE, SMALL, cpu, line

from gangline.errors import ConfigError
from gangline.planner.choose import choose
from gangline.planner.runnable import RUNNABLE
from gangline.spec.line import MemoryTable, ProveTable
from gangline.spec.plan import Compression, Recovery
from gangline.train.strategies import SUPPORTED


def test_planner_and_runtime_know_the_same_strategies():
    assert RUNNABLE == SUPPORTED


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("train.compression.kind", {"compression": Compression(kind="powersgd")}),
        ("train.memory.activation_checkpointing", {"memory": MemoryTable(activation_checkpointing="full")}),
        ("train.memory.loss_chunks", {"memory": MemoryTable(loss_chunks=8)}),
        ("train.memory.offload", {"memory": MemoryTable(offload="cpu")}),
        ("train.recovery.mode", {"recovery": Recovery(mode="live")}),
    ],
)
def test_option_that_would_be_ignored_is_refused_by_its_key(key, table):
    with pytest.raises(ConfigError, match=f"^{key}: .* is not carried out by this runtime yet; .* work"):
        choose(line(**table), SITE, cpu(2), SMALL)


def test_all_such_options_are_refused_together():
    asked = line(compression=Compression(kind="fp16"), recovery=Recovery(mode="live"))
    with pytest.raises(ConfigError) as caught:
        choose(asked, SITE, cpu(2), SMALL)
    assert len(str(caught.value).splitlines()) == 2


def test_second_plan_that_cannot_be_run_is_refused_before_the_first_one_starts():
    asked = replace(line(), prove=ProveTable(plan="tp"))
    with pytest.raises(ConfigError, match=r'^prove\.plan: "tp" is not run'):
        choose(asked, SITE, cpu(2), SMALL)


@pytest.mark.parametrize("plan", ["auto", "off", "fsdp", "zero3"])
def test_second_plan_that_can_be_run_stands(plan):
    assert choose(replace(line(), prove=ProveTable(plan=plan)), SITE, cpu(2), SMALL).name == "ddp-2"
