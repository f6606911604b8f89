"""Rates of interruptions: published counts and figures, and a fleet whose failures are drawn one by one."""

from random import Random
from typing import get_args

import pytest

from gangline.errors import ConfigError
from gangline.fabric.reliability.failures import (
    LLAMA3_CAUSES,
    PRESETS,
    interrupt_probability,
    interruption_rate,
    longest_loss_seconds,
    mean_hours_between,
    rates_of,
)
from gangline.spec.config.fabric import FailureRates, Preset


def mean_hours(preset, **parts):
    return mean_hours_between(interruption_rate(preset, **parts))


def test_the_18_published_causes_sum_to_419():
    assert len(LLAMA3_CAUSES) == 18
    assert sum(LLAMA3_CAUSES.values()) == 419
    assert 100 * LLAMA3_CAUSES["faulty GPU"] / 419 == pytest.approx(35.3, abs=0.05)  # printed: 30.1 %
    assert LLAMA3_CAUSES["network switch or cable"] == 35


def test_presets_have_the_names_that_fabric_toml_knows():
    assert set(get_args(Preset)) == set(PRESETS)


def test_hours_of_the_presets():
    assert rates_of("llama3").gpu_hours == pytest.approx(50_677, abs=0.5)
    assert [rates_of(name).gpu_hours for name in ("month-99.9", "month-99.99")] == pytest.approx(
        [729_635, 7_299_635], abs=0.5
    )
    assert [mean_hours(name, gpus=16_384) for name in ("llama3", "rsc1", "rsc2")] == pytest.approx(
        [3.09, 1.80, 5.01], abs=0.005
    )
    assert 730 / mean_hours("llama3", gpus=1000) == pytest.approx(14.4, abs=0.05)
    assert mean_hours("hpn-link", gpus=16_384, links=16_384) == pytest.approx(78, abs=0.5)
    assert mean_hours("optics-10M", gpus=16_384, optics=98_304) == pytest.approx(102, abs=0.5)


@pytest.mark.parametrize(("preset", "hours"), [("month-99.9", 31.3), ("month-99.99", 82.0)])
def test_gpus_and_optics_fail_next_to_each_other(preset, hours):
    rates = FailureRates(gpu_hours=PRESETS[preset].gpu_hours, optic_hours=10e6)
    assert mean_hours(rates, gpus=16_000, optics=100_000) == pytest.approx(hours, abs=0.05)


def test_a_server_counts_once_for_its_gpus():
    assert interruption_rate("rsc1", gpus=16) == interruption_rate("rsc1", gpus=16, servers=2)
    assert interruption_rate(FailureRates(leaf_hours=1000.0), gpus=8, leaves=3) == pytest.approx(0.003)


def test_what_is_not_known_is_not_counted():
    assert mean_hours("optics-10M", gpus=1024) == float("inf")


def test_a_fleet_is_interrupted_as_often_as_said():
    """Each device fails on its own at exponential times; a window counts where any of them does."""
    random, hours, windows = Random(5), 2.0, 20_000
    rates = FailureRates(gpu_hours=400.0, server_hours=150.0)
    hit = sum(
        any(random.expovariate(1 / mean) < hours for mean in (*[400.0] * 32, *[150.0] * 4)) for _ in range(windows)
    )
    expected = interrupt_probability(interruption_rate(rates, gpus=32, servers=4), hours)
    assert hit / windows == pytest.approx(expected, abs=4 * (expected * (1 - expected) / windows) ** 0.5)


def test_an_unknown_preset_names_the_known():
    with pytest.raises(ConfigError, match=r"found 'llama4'; there are llama3, rsc1"):
        rates_of("llama4")


@pytest.mark.parametrize(("timeout", "seconds"), [(20, 30.1), (18, 7.5), (22, 120)])
def test_loss_that_a_connection_survives(timeout, seconds):
    assert longest_loss_seconds(timeout) == pytest.approx(seconds, rel=5e-3)
