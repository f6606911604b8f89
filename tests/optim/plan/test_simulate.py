"""Modelled times of a step: the published table, its goals, and what they follow from."""

import pytest
from tools import optimizer_tables as tables
from tools.qwen3 import QWEN3

from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import MuonSpec
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.groups import HostExchangeRate
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.simulate import simulate


@pytest.mark.parametrize(
    ("size", "figures", "ratios"),
    [
        ("1.7B", [157.5, 7.10, 16.7, 2.91, 1.61, 1.29], [5.7, 10.3, 1.80]),
        ("8B", [1247, 59.0, 104.5, 18.17, 9.75, 7.40], [5.8, 10.7, 1.86]),
        ("32B", [6409, 200.3, 382.3, 55.00, 28.72, 21.89], [7.0, 13.3, 1.92]),
    ],
)
def test_steps_of_256_ranks(size, figures, ratios):
    row = tables.step_row(size)
    assert list(row.values()) == pytest.approx(figures, rel=0.005)
    step, before, ours = row["layerwise step"], row["LB-ASC"], row["ours"]
    assert [step / before, step / ours, before / ours] == pytest.approx(ratios, rel=0.01)
    assert step / ours >= 10
    assert before / ours >= (1.9 if size == "32B" else 1.8)


def test_iterations_of_32b():
    rows = tables.iteration_rows(tables.step_row("32B"))
    assert [round(row[1]) for row in rows] == [503, 1006, 2013, 4026, 8052]
    assert [round(row[2], 2) for row in rows] == [1.59, 1.31, 1.16, 1.08, 1.04]
    assert [round(row[3], 2) for row in rows] == [1.66, 1.34, 1.17, 1.09, 1.04]


def test_fused_matrices_of_32b_take_the_same_at_any_ceiling():
    """8 items on 8 hosts: nothing is left to pipeline."""
    seconds = {
        round(1000 * simulate(build_plan(
            QWEN3["32B"].matrices("fused"), MuonSpec(), ranks=32, hosts=8,
            options=PlanOptions(c_max_bytes=1 << power),
        )).step_seconds, 2)
        for power in (28, 30, 34)
    }  # fmt: skip
    assert seconds == {55.00}


def test_other_rates_are_other_times():
    plan = build_plan([LogicalMatrix(fqn="w", shape=(1000, 1000))], MuonSpec(), ranks=2, hosts=2)
    own = simulate(plan)
    slow = simulate(
        plan, exchange=HostExchangeRate(bytes_per_second=1e6, latency_seconds=0.0),
        sync=SyncRate(bytes_per_second=1e6, latency_seconds=0.0),
    )  # fmt: skip
    assert own.step_seconds < slow.step_seconds
    assert slow.exchange_seconds == pytest.approx(2 * 4.0)
    assert slow.sync_seconds == pytest.approx(4.0 / 2 / 2)
    assert slow.publish_seconds == slow.exposed_seconds == slow.sync_seconds


def test_one_process_exchanges_nothing():
    found = simulate(build_plan([LogicalMatrix(fqn="w", shape=(8, 8))], MuonSpec()))
    assert (found.sync_seconds, found.exchange_seconds, found.publish_seconds) == (0, 0, 0)
    assert found.step_seconds == found.compute_seconds > 0
