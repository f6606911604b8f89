"""The reference case to the digits: what each layout needs and takes, how many candidates there are and fit."""

from dataclasses import fields

import pytest
from tests.planner.cases import gpus, line
from tests.planner.formula.reference import EIGHT, R1

from gangline.planner.choice import choose_plan
from gangline.planner.formula.evaluate import evaluate
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.formula.step_time import StepParts
from gangline.spec.config.line import MemoryTable, MeshTable
from gangline.spec.config.site import GpuTable, Site

ROWS = {
    "fsdp-16 b4s": (2.0, 2.0, 4.0, 53.7, 4.9, 66.6, 23.80, 423),
    "tp2 zero2-8 b1": (10.0, 16.1, 4.0, 11.0, 3.7, 44.8, 23.41, 416),
    "pp2 zero2-8 b1": (10.6, 16.9, 4.2, 23.4, 1.3, 56.4, 23.62, 420),
    "zero2-16 b2s": (18.1, 2.0, 4.0, 26.8, 14.7, 65.6, 23.87, 424),
    "tp8 rep2 b1": (6.0, 4.0, 8.0, 2.8, 0.9, 21.7, 27.51, 489),
    "zero1-16 b1f": (48.2, 32.1, 4.0, 1.1, 0.9, 86.3, None, None),
    "ddp-16 b1f": (48.2, 32.1, 64.2, 1.1, 0.9, 146.5, None, None),
}
"""GB of weights, gradients, optimizer, activations, buffers and all; seconds of a step; euros of 2,000 steps at 2.00
a GPU-hour."""
EVALUATION = evaluate(R1)


def test_every_product_is_a_candidate_and_those_that_fit_are_counted():
    found = EVALUATION.search
    assert (found.num_candidates, found.num_weighed, found.num_fit) == (2160, 2160, 1368)
    assert found.bound_seconds == pytest.approx(22.59, abs=0.005)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_the_digits_of_the_page(name):
    *causes, total, seconds, money = ROWS[name]
    plan = next(each for each in EVALUATION.plans if each.name == name)
    assert [each / 1e9 for each in plan.memory.by_cause.values()] == pytest.approx(causes, abs=0.051)
    assert plan.memory.total / 1e9 == pytest.approx(total, abs=0.051)
    assert plan.fits == (seconds is not None)
    if seconds is not None:
        assert plan.step_seconds == pytest.approx(seconds, rel=0.0003)
        assert 16 * 2000 * plan.step_seconds / 3600 * 2.0 == pytest.approx(money, abs=0.51)


def test_what_the_page_says_of_the_losers():
    parts = {each.name: each.parts for each in EVALUATION.plans}
    assert parts["tp8 rep2 b1"].tensor == pytest.approx(4.81, abs=0.005)
    assert parts["zero2-16 b2s"].exchange == pytest.approx(1.28, abs=0.005)
    assert parts["pp2 zero2-8 b1"].bubble / parts["pp2 zero2-8 b1"].total == pytest.approx(0.030, abs=0.0005)


def test_the_parts_of_a_step_are_its_sum():
    for each in EVALUATION.plans:
        assert each.step_seconds == pytest.approx(sum(getattr(each.parts, one.name) for one in fields(StepParts)))
        assert each.memory.total == pytest.approx(sum(each.memory.by_cause.values()))


SITE = Site(
    gpu={
        "a100": GpuTable(
            memory_bytes=80e9, flops_per_second={"bf16": 140e12}, memory_bytes_per_second=2.0e12,
            link_bytes_per_second=200e9, network_bytes_per_second=40e9, price_per_hour=2.0,
        )
    }
)  # fmt: skip


def test_the_choice_is_one_axis_within_the_band():
    asked = line(batch=256, steps=2000, mesh=MeshTable(pp_schedule="1f1b"), memory=MemoryTable())
    choice = choose_plan(asked, SITE, gpus(8, 2, name="a100"), formula_profile(EIGHT))
    assert (choice.name, choice.strategy, choice.micro_batch) == ("fsdp-16", "fsdp", 4)
    assert choice.memory.activation_checkpointing == "selective"
    assert (choice.memory.loss_chunks, choice.memory.gradient_sync) == (8, "each")
    assert choice.reason == "one axis; 5.4 % above the bound"
    assert choice.forecast.step_seconds == pytest.approx(23.798, abs=0.001)
    assert choice.forecast.interrupt_probability == pytest.approx(0.0042, abs=0.0001)
    by_name = {each.name: each for each in choice.candidates}
    assert by_name["tp2 zero2-8"].verdict == "unsupported"
    assert by_name["tp2 zero2-8"].reason.startswith("-1.6 %")
    assert (by_name["pp2 zero2-8"].verdict, by_name["pp2 zero2-8"].reason) == (
        "more_axes",
        "-0.8 %: in the band, 2 axes where 1 does",
    )
    assert by_name["ddp-16"].reason.startswith("no fit: optimizer 64 GB")
