"""Defects read in the released code of Canzona, each with what a plan does instead."""

import pytest
from tools import optimizer_tables as tables
from tools.qwen3 import QWEN3

from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import MuonSpec, cost
from gangline.optim.plan.groups import HostExchangeRate, HostItem, plan_groups
from gangline.optim.plan.matrix import FragmentSplit, fragments
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.owners import balance_ratio, loads_of
from gangline.units import Bytes, Seconds

MUON = MuonSpec()


def test_balance_is_of_cost_where_elements_mislead():
    """Targets and loads of its data-parallel slices are elements whatever the cost is."""
    matrices = QWEN3["8B"].matrices("split")
    costs = tables.flops(matrices)
    by_elements = balance_ratio(loads_of(tables.sliced(matrices, 32, 1, tables.BUCKET)[0], costs, 32))
    assert build_plan(matrices, MUON, ranks=32).ratio < 1.01 < 1.1 < by_elements


def test_a_ceiling_is_bytes_and_meets_no_other_kind():
    """It compares C_max * 1024 * 1024 elements with the cost: in FLOPs every real matrix is above it."""
    matrices = QWEN3["32B"].matrices("split")
    assert all(cost(MUON, each.shape).value > 1024 * 1024**2 for each in matrices), "what it would refuse"
    plan = build_plan(matrices, MUON, ranks=4, hosts=8, options=PlanOptions(c_max_bytes=1 << 30))
    assert not any(each.is_oversize for each in plan.matrices)
    with pytest.raises(TypeError, match="wanted Flops, found Bytes"):
        assert cost(MUON, (4, 4)) < Bytes(1 << 30)


def test_the_cost_of_a_cut_matrix_is_that_of_the_whole():
    """It takes the local shard's, without 2 m^3: at TP 8 gate seems 9.8 times q, and is 2.6 times."""

    def of_shard(rows, columns):
        m, n = sorted((rows // 8, columns))
        return 4 * m * m * n

    gate, q = (25_600, 5120), (8192, 5120)
    assert round(of_shard(*gate) / of_shard(*q), 1) == 9.8
    assert round(cost(MUON, gate) / cost(MUON, q), 1) == 2.6
    whole, cut = (
        {
            each.matrix.key: each.seconds
            for each in build_plan(QWEN3["32B"].matrices("split"), MUON, hosts=hosts).matrices
        }
        for hosts in (1, 8)
    )
    assert whole == cut


def test_the_cubic_term_counts():
    assert cost(MUON, (5120, 5120)).value == 5 * (4 + 2) * 5120**3


def test_fragments_of_a_fused_tensor_have_hosts_of_their_own():
    """It splits fc1 and qkv inside one host, so that the largest item stays as large."""
    matrices = [
        *fragments("fc1", (51_200, 5120), FragmentSplit(kind="gate_up")),
        *fragments("qkv", (10_240, 5120), FragmentSplit(kind="qkv", heads=64, kv_heads=8, head_dim=128)),
    ]
    plan = build_plan(matrices, MUON, hosts=5)
    hosts = {each.matrix.key: each.host for each in plan.matrices}
    assert hosts["fc1", "gate"] != hosts["fc1", "up"]
    assert hosts["qkv", "q"] not in {hosts["fc1", "gate"], hosts["fc1", "up"]}


def test_an_item_above_the_ceiling_is_planned():
    items = [HostItem(key=("w", ""), seconds=Seconds(1.0), hosted=Bytes(100))]
    plan = plan_groups(items, 2, c_max=Bytes(10), rate=HostExchangeRate())
    assert plan.groups == (((0,), ()),)
