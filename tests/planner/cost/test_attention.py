"""Fused attention counts by its own rate, masked half left out; what is not fused is products like any other."""

from dataclasses import replace

import pytest
from tests.planner.cases import RATES, TRACED, cpu, line

from gangline.planner.forecast import formula_of
from gangline.planner.layouts.layout import Layout
from gangline.planner.pool import open_pool
from gangline.planner.problem import PlanProblem
from gangline.planner.settings import Setting
from gangline.spec.config.site import Site
from gangline.spec.devices import AttentionRate
from gangline.spec.mesh import Mesh
from gangline.spec.profile import Attention

(TRACE,) = TRACED.traces
SIZE = Attention(heads=8, queries=256, keys=256, width=32, is_causal=False, count=2)
"""Of both samples of the trace; two layers."""


def seconds(*attention, rates=RATES, **how) -> float:
    """Of computing."""
    profile = replace(TRACED, traces=(replace(TRACE, attention=attention),))
    problem = PlanProblem(line=line(), pool=open_pool(Site(), cpu(2)), profile=profile, rates=rates)
    asked = Setting(micro_batch=8, precision="fp32", **how)
    terms = formula_of(problem, Layout("ddp", Mesh(dp_replicate=2)), asked).terms
    return next(term.seconds for term in terms if term.part == "compute")


def at(rate: float, size=SIZE):
    reported = AttentionRate(
        queries=size.queries, keys=size.keys, width=size.width, is_causal=size.is_causal, flops_per_second=rate
    )
    return replace(RATES, attention=(reported,))


def test_operations_are_those_of_two_products_forward_and_five_backward():
    assert SIZE.flops == SIZE.counted_flops == 7 * 2 * 8 * 256 * 256 * 32
    causal = replace(SIZE, is_causal=True)
    assert (causal.flops, causal.counted_flops) == (SIZE.flops / 2, SIZE.flops)


def test_without_a_rate_of_its_own_it_goes_at_that_of_products():
    assert seconds(SIZE) == pytest.approx(seconds())
    saved = seconds() - seconds(replace(SIZE, is_causal=True))
    assert saved == pytest.approx(8 / 2 * SIZE.flops * SIZE.count / 2 / 1e12), "half of it, of eight samples"


@pytest.mark.parametrize("rate", [1e11, 2e12])
def test_its_own_rate_counts_for_its_own_operations(rate):
    more = seconds(SIZE, rates=at(rate)) - seconds()
    own = 8 * SIZE.count * SIZE.flops / TRACE.samples
    assert more == pytest.approx(own / rate - own / 1e12)


def test_a_size_that_was_not_measured_goes_at_the_rate_of_the_others():
    other = replace(SIZE, queries=512, keys=512)
    assert seconds(SIZE, rates=at(1e11, other)) == pytest.approx(seconds(SIZE, rates=at(1e11)))
