"""What a rule asks of a whole model, against its costs matrix by matrix."""

import pytest

from gangline.optim.plan.costs import MuonSpec, ShampooSpec, SoapSpec, cost, state_elements
from gangline.optim.plan.shapes import QWEN3
from gangline.optim.plan.work import matrix_work, rule_spec

MATRICES = QWEN3["1.7B"].matrices("split")


@pytest.mark.parametrize("rule", [MuonSpec(), ShampooSpec(), SoapSpec(refresh_every=5)])
def test_work_is_the_sum_over_matrices_and_the_largest_of_them(rule):
    work = matrix_work(MATRICES, rule, element_bytes=2)
    flops = [cost(rule, each.shape).value for each in MATRICES]
    assert work.flops == pytest.approx(sum(flops), rel=1e-12)
    assert work.largest_flops == max(flops)
    assert work.parameters == sum(each.elements.value for each in MATRICES)
    for where, size in (("sharded", work.sharded_bytes), ("owner", work.owner_bytes)):
        assert size == 4 * sum(state_elements(rule, each.shape, at=where).value for each in MATRICES)
    owned = max(state_elements(rule, each.shape, at="owner").value for each in MATRICES)
    assert work.largest_owner_bytes == 4 * owned
    assert work.element_bytes == 2


def test_options_of_a_line_reach_the_costs():
    assert rule_spec("muon", {"ns_steps": 3, "lr": 1.0}) == MuonSpec(steps=3)
    assert rule_spec("soap", {"refresh_every": 7}) == SoapSpec(refresh_every=7)
    assert rule_spec("shampoo", {}) == ShampooSpec()
    assert rule_spec("model:Mine", {}) is None
