"""Work of the rules on the public shapes of Qwen3: totals known from elsewhere, and what the formulas must obey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.qwen3 import QWEN3

from gangline.errors import ConfigError
from gangline.optim.plan.costs import (
    DeviceCurve,
    MeasuredCost,
    MuonSpec,
    ShampooSpec,
    SoapSpec,
    cost,
)
from gangline.units import Seconds

MUON = [MuonSpec(kernel=kernel) for kernel in ("standard", "symmetric", "gram")]


def total(size, rule):
    return sum(cost(rule, each.shape).value for each in QWEN3[size].matrices("split")) / 1e12


@pytest.mark.parametrize(
    ("size", "parameters", "matrices", "split", "fused"),
    [("1.7B", 1.7206, 1.409, 196, 112), ("4B", 4.0225, 3.633, 252, 144), ("8B", 8.1907, 6.946, 252, 144),
     ("14B", 14.7683, 13.212, 280, 160), ("32B", 32.7621, 31.206, 448, 256)],
)  # fmt: skip
def test_sizes_of_qwen3(size, parameters, matrices, split, fused):
    model = QWEN3[size]
    assert round(model.num_parameters / 1e9, 4) == parameters
    for layout, count in (("split", split), ("fused", fused)):
        found = model.matrices(layout)
        assert (len(found), round(sum(each.elements.value for each in found) / 1e9, 3)) == (count, matrices)


@pytest.mark.parametrize(
    ("size", "teraflops"),
    [("1.7B", [67.9, 47.8, 41.9]), ("8B", [674.9, 475.1, 414.1]), ("32B", [3571.4, 2570.8, 1803.9])],
)
def test_work_of_muon_by_kernel(size, teraflops):
    assert [round(total(size, rule), 1) for rule in MUON] == teraflops


def test_work_of_shampoo_and_soap():
    assert [round(total("8B", ShampooSpec())), round(total("32B", ShampooSpec()) / 1e3, 1)] == [959, 11.8]
    assert [round(total(size, SoapSpec())) for size in ("1.7B", "8B", "32B")] == [74, 226, 1370]


def test_elements_are_a_poor_measure_of_work():
    work = {
        shape: cost(MUON[0], shape).value / 1e12
        for shape in [(8192, 5120), (1024, 5120), (25_600, 5120), (51_200, 5120)]
    }
    assert [round(each, 3) for each in work.values()] == [5.637, 0.118, 14.764, 28.186]
    assert [cost(MUON[0], shape).value / (shape[0] * shape[1]) for shape in [(1024, 5120), (5120, 5120)]] == [
        22_528,
        153_600,
    ]


@given(shape=st.tuples(st.integers(1, 9000), st.integers(1, 9000)))
def test_the_orientation_of_a_matrix_does_not_change_its_work(shape):
    for rule in (*MUON, ShampooSpec(), SoapSpec()):
        assert cost(rule, shape).value == pytest.approx(cost(rule, shape[::-1]).value)


@given(m=st.integers(64, 8000), ratio=st.floats(1, 8))
def test_gram_iterations_win_above_five_thirds(m, ratio):
    n = round(m * ratio)
    if abs(3 * n - 5 * m) > 3:
        assert (cost(MUON[2], (m, n)) < cost(MUON[1], (m, n))) is (3 * n > 5 * m)


def elements(state, where):
    return sum(rows * columns for (rows, columns), _, place in state.values() if place == where)


def test_a_side_above_the_largest_keeps_no_basis():
    tall = SoapSpec().state((12_288, 4096))
    assert set(tall) == {"step", "exp_avg", "exp_avg_sq", "factor_right", "basis_right"}
    assert elements(tall, "owner") == 1 + 2 * 12_288 * 4096 + 2 * 4096**2


def test_a_square_matrix_has_two_factors():
    assert elements(SoapSpec().state((5, 5)), "owner") == 1 + 2 * 25 + 4 * 25
    assert elements(ShampooSpec().state((5, 5)), "owner") == 1 + 25 + 4 * 25


def test_state_by_place():
    assert elements(ShampooSpec().state((3, 5)), "owner") == 1 + 15 + 2 * (9 + 25)
    assert elements(MUON[0].state((3, 5)), "sharded") == 15


@pytest.mark.parametrize(("rule", "milliseconds"), list(zip(MUON, (1193, 849, 743), strict=True)))
def test_seconds_of_all_matrices_of_8b(rule, milliseconds):
    device = DeviceCurve()
    seconds = sum(device.seconds(rule, each.shape).value for each in QWEN3["8B"].matrices("split"))
    assert round(1000 * seconds) == milliseconds


def test_a_measured_time_wins_over_the_curve():
    row = MeasuredCost(rule="muon/standard", shape=(4, 8), dtype="bfloat16", seconds=0.5)
    device = DeviceCurve(table=(row,))
    assert device.seconds(MUON[0], (8, 4)) == Seconds(0.5)
    other = MuonSpec(dtype="float32")
    for rule in (MUON[1], other):
        assert device.seconds(rule, (8, 4)) == DeviceCurve().seconds(rule, (8, 4))
    with pytest.raises(ConfigError):
        DeviceCurve(peak_flops_per_second=0)


def test_what_a_table_lacks_is_modelled_on_the_scale_of_what_it_has():
    model = DeviceCurve()

    def row(shape, factor):
        seconds = factor * model.seconds(MUON[0], shape).value
        return MeasuredCost(rule="muon/standard", shape=shape, dtype="bfloat16", seconds=seconds)

    device = DeviceCurve(table=(row((4, 8), 2.0), row((4, 16), 3.0), row((8, 8), 9.0)))
    for shape, batch in (((5, 8), 1), ((5, 8), 2)):
        wanted = 3.0 * model.seconds(MUON[0], shape, batch).value
        assert device.seconds(MUON[0], shape, batch).value == pytest.approx(wanted)


def test_a_batch_takes_as_long_as_the_largest_measured_ones_up_to_it():
    rows = [
        MeasuredCost(rule="muon/standard", shape=(4, 8), dtype="bfloat16", batch=batch, seconds=seconds)
        for batch, seconds in ((1, 0.5), (4, 0.8))
    ]
    device = DeviceCurve(table=tuple(rows))
    found = [device.seconds(MUON[0], (8, 4), batch).value for batch in (1, 3, 4, 8)]
    assert found == pytest.approx([0.5, 1.5, 0.8, 1.6])


def test_a_measured_refresh_is_spread_over_its_steps_and_known_alone():
    row = MeasuredCost(rule="shampoo", shape=(4, 8), dtype="float32", seconds=1.0, refresh_seconds=5.0)
    device = DeviceCurve(table=(row,))
    assert device.seconds(ShampooSpec(refresh_every=10), (8, 4)) == Seconds(1.5)
    assert device.refresh_seconds(ShampooSpec(refresh_every=10), (8, 4)) == Seconds(5.0)
    assert device.refresh_seconds(ShampooSpec(), (8, 8)).value > 0
