"""What calibration promises: a bias shrinks as fast as said, one wild record moves little, the band covers a stream."""

import math
import random
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.planner.cost.calibration import (
    BAND_FLOOR,
    FEWEST_FOR_QUANTILE,
    MARGIN_FLOOR,
    MOST_RECORDS,
    Factor,
    band_of,
    calibrate,
    factor_of,
    margin_of,
    percentile,
)
from gangline.spec.forecast import Forecast, Term
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MeasuredRun

biases = st.floats(min_value=0.05, max_value=20.0)
KEY = ("cpu", "fp32")


def run(*, raw: float = 1.0, seconds: float = 1.0, forecast: float | None = None, **more) -> MeasuredRun:
    term = Term(part="compute", seconds=raw, raw_seconds=raw, origin="measured")
    fields = {
        "mesh": Mesh(dp_replicate=2),
        "parts": {"compute": seconds},
        "device": "cpu",
        "precision": "fp32",
        "global_batch": 8,
        "micro_batch": 4,
    }
    return MeasuredRun(
        run="r", strategy="ddp", step_seconds=seconds,
        forecast=Forecast(terms=(term,), step_seconds=forecast, memory_bytes=100), **fields | more,
    )  # fmt: skip


@given(bias=biases, count=st.integers(min_value=0, max_value=MOST_RECORDS))
def test_of_a_constant_bias_the_right_root_stays(bias, count):
    factor = factor_of([bias] * count)
    assert bias / factor.value == pytest.approx(bias ** (1 / (count + 1)))
    assert factor.count == count


@given(ratios=st.lists(biases, min_size=9, max_size=9), wild=st.floats(min_value=1e-6, max_value=1e6))
def test_one_wild_record_in_ten_moves_the_median_to_its_neighbour_at_most(ratios, wild):
    logs = sorted(map(math.log, ratios))
    learned = math.log(factor_of([*ratios, wild]).value) * 11 / 10
    assert logs[3] - 1e-9 <= learned <= logs[5] + 1e-9
    assert median(logs) == logs[4]


@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_the_band_covers_nine_of_ten_of_a_stream(spread):
    """Forecasts one after another, each judged by the band that the fifty before it left."""
    luck = random.Random(7)
    ratios = [math.exp(luck.gauss(0.0, spread)) for _ in range(4000)]
    covered = [
        abs(math.log(ratio)) <= math.log(1 + band_of(ratios[max(0, at - MOST_RECORDS) : at]))
        for at, ratio in enumerate(ratios)
        if at >= FEWEST_FOR_QUANTILE
    ]
    assert 0.89 <= sum(covered) / len(covered) <= 0.95


def test_a_percentile_of_few_values_is_the_largest():
    assert percentile([1.0, 5.0, 3.0], 0.9) == 5.0
    assert percentile(list(range(1, 10)), 0.9) == 9
    assert percentile(list(range(1, 20)), 0.9) == 18


@given(
    ratios=st.lists(st.floats(min_value=0.999, max_value=1.001), min_size=FEWEST_FOR_QUANTILE, max_size=MOST_RECORDS)
)
def test_no_band_falls_below_its_floor(ratios):
    assert band_of(ratios) == BAND_FLOOR
    assert margin_of(ratios) == MARGIN_FLOOR


def test_few_errors_never_narrow_what_holds_without_any_but_widen_it():
    assert band_of([]) is None
    assert band_of([1.0] * (FEWEST_FOR_QUANTILE - 1), default=0.05) == 0.05
    assert band_of([1.5], default=0.05) == pytest.approx(0.5)
    assert band_of([1 / 1.5], default=0.05) == pytest.approx(0.5)
    assert margin_of([1.3, 0.5], default=0.10) == pytest.approx(0.3)


def test_a_factor_is_about_its_own_device_precision_and_part():
    history = [run(seconds=2.0)] * 3 + [run(seconds=9.0, precision="bf16"), run(seconds=9.0, device_name="other")]
    known = calibrate(history, KEY)
    assert known.factor("compute") == Factor(pytest.approx(2 ** (3 / 4)), 3)
    assert calibrate(history, ("other", "fp32")).factor("compute").count == 1
    assert calibrate(history, ("nobody", "fp32")).factor("compute") == Factor()


def test_shards_and_copies_err_unlike_and_each_asks_for_its_own():
    """Copies take as long as forecast, shards four times: each goes from the median of all towards its own."""
    history = [run(seconds=1.0)] * 2 + [run(seconds=4.0, mesh=Mesh(dp_shard=2))]
    known = calibrate(history, KEY)
    assert known.factor("compute", "copies").value == pytest.approx(1.0)
    assert known.factor("compute", "shards").value == pytest.approx(4 ** (1 / 2))
    alone = calibrate([run(seconds=4.0, mesh=Mesh(dp_shard=2))] * 3, KEY)
    assert alone.factor("compute", "shards").value == pytest.approx(4 ** (3 / 4))
    assert alone.factor("compute", "copies").value == pytest.approx(4 ** (3 / 4))


def test_only_the_newest_fifty_count():
    history = [run(seconds=2.0)] * MOST_RECORDS + [run(seconds=100.0)] * 200
    assert calibrate(history, KEY).factor("compute") == Factor(pytest.approx(2 ** (50 / 51)), MOST_RECORDS)


def test_a_part_that_no_clock_distinguished_takes_the_factor_of_the_step():
    known = calibrate([run(seconds=3.0, parts={})] * 4, KEY)
    assert known.factor("compute") == known.factor("optimizer") == Factor(pytest.approx(3 ** (4 / 5)), 4)


def test_a_forecast_with_a_part_missing_says_nothing_of_the_whole_step():
    lame = run(seconds=3.0, parts={})
    lame = replace(lame, forecast=replace(lame.forecast, missing="no rate of links"))
    assert calibrate([lame], KEY).step == Factor()


def test_what_has_no_formula_is_reported_by_the_runs_before():
    history = [run(parts={"data": 0.4, "other": 0.1}), run(parts={"data": 0.8, "other": 0.3})]
    assert calibrate(history, KEY).seconds == pytest.approx({"data": 0.15, "other": 0.2})


def test_the_band_is_made_of_forecasts_as_they_were_given_not_of_raw_ones():
    history = [run(raw=1.3, seconds=1.0, forecast=1.1)] * 10
    assert calibrate(history, KEY).band == pytest.approx(0.1)


def test_the_band_holds_what_few_runs_leave_of_a_bias_and_no_first_forecasts():
    """One run that took four times as long corrects by two: the next forecast may be off by two again."""
    first = run(seconds=4.0, forecast=1.0)
    first = replace(first, forecast=replace(first.forecast, origin="rates measured"))
    assert calibrate([first], KEY).band == pytest.approx(1.0)
    assert calibrate([first] * 10, KEY).band == pytest.approx(4 ** (1 / 11) - 1)
    assert calibrate([first] * 50, KEY).band is None  # what is left lies within the site's own
    assert calibrate([run(seconds=1.0)], KEY).band is None


def test_peaks_of_processes_say_nothing_of_tensors():
    assert calibrate([run(peak_memory_bytes=900)] * 10, KEY).memory_margin is None
    gpus = [run(device="cuda", device_name="g", peak_memory_bytes=108)] * 10
    assert calibrate(gpus, ("g", "fp32")).memory_margin == pytest.approx(0.08)
