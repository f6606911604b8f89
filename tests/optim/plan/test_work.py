"""What a rule asks of a whole model, against its costs matrix by matrix."""

import pytest
from tools.qwen3 import QWEN3

from gangline.optim.plan.costs import (
    DeviceCurve,
    MeasuredCost,
    MuonSpec,
    ShampooSpec,
    SoapSpec,
    cost,
)
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.work import matrix_work, rule_spec
from gangline.spec.config.matrix_options import RULES
from gangline.spec.config.matrix_rule import OWNER_STATE_RULES, read_matrix_rule

MATRICES = QWEN3["1.7B"].matrices("split")


@pytest.mark.parametrize("rule", [MuonSpec(), ShampooSpec(), SoapSpec(refresh_every=5)])
def test_work_is_the_sum_over_matrices_and_the_largest_of_them(rule):
    work = matrix_work(MATRICES, rule, PlanOptions(element_bytes=2))
    flops = [cost(rule, each.shape).value for each in MATRICES]
    assert work.flops == pytest.approx(sum(flops), rel=1e-12)
    assert work.largest_flops == max(flops)
    assert work.parameters == sum(each.elements.value for each in MATRICES)
    for where, size in (("sharded", work.sharded_bytes), ("owner", work.owner_bytes)):
        assert size == 4 * sum(elements(rule, each.shape, where) for each in MATRICES)
    owned = max(elements(rule, each.shape, "owner") for each in MATRICES)
    assert work.largest_owner_bytes == 4 * owned
    assert work.element_bytes == 2


def elements(rule, shape, where):
    return sum(rows * columns for (rows, columns), _, place in rule.state(shape).values() if place == where)


def test_a_batch_takes_what_was_measured_of_as_many_as_fit():
    shape = (64, 64)
    matrices = [LogicalMatrix(fqn=f"layers.{at}", shape=shape) for at in range(6)]
    rows = tuple(
        MeasuredCost(rule="muon/standard", shape=shape, dtype="bfloat16", batch=batch, seconds=seconds)
        for batch, seconds in ((1, 1.0), (2, 1.2), (4, 2.0))
    )

    def seconds(**options):
        return matrix_work(matrices, MuonSpec(), PlanOptions(**options), measured=DeviceCurve(table=rows)).seconds

    assert seconds() == 6.0
    assert seconds(batch=4) == pytest.approx(6 * 2.0 / 4)
    assert seconds(batch=4, c_max_bytes=2 * 4 * 64 * 64) == pytest.approx(6 * 1.2 / 2)


def test_rules_that_keep_state_at_owners_are_those_that_lines_name():
    specs = {rule: rule_spec(options()) for rule, options in RULES.items()}
    kept = [rule for rule, spec in specs.items() if any(where == "owner" for *_, where in spec.state((2, 2)).values())]
    assert tuple(kept) == OWNER_STATE_RULES


def test_options_of_a_line_reach_the_costs():
    def spec(**table):
        return rule_spec(read_matrix_rule(table).options)

    assert spec(rule="muon", ns_steps=3, lr=1.0) == MuonSpec(steps=3)
    assert spec(rule="soap", refresh_every=7) == SoapSpec(refresh_every=7)
    assert spec(rule="shampoo") == ShampooSpec()
    assert spec(rule="model:Mine") is None
