"""The exact interval: published optima, a derivative of zero, and runs simulated interruption by interruption."""

from math import inf, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.fabric.reliability.failures import interruption_rate, mean_hours_between
from gangline.fabric.reliability.interval import best_interval, effective_share, write_seconds

HOUR, MINUTE = 3600.0, 60.0


@pytest.mark.parametrize(("mean_minutes", "published", "minutes"), [(24 * 60, 117, 116.7), (15, 9.1, 9.17)])
def test_published_optima(mean_minutes, published, minutes):
    found = best_interval(5, mean_minutes)
    assert found == pytest.approx(minutes, abs=0.05)
    assert found == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("mean", "write", "percent"), [(15, 5, 2.7), (185, 1, 0.006)])
def test_first_order_loses_what_is_said_of_it(mean, write, percent):
    best = effective_share(best_interval(write, mean), write, 0, mean)
    young = effective_share(sqrt(2 * write * mean), write, 0, mean)
    assert 100 * (1 - young / best) == pytest.approx(percent, rel=0.05)


@pytest.mark.parametrize(
    ("mean_hours", "minutes", "percents"),
    [
        (mean_hours_between(interruption_rate("llama3", gpus=16_384)), (6.50, 27.9, 2.60), (94.9, 78.4, 97.0)),
        (mean_hours_between(interruption_rate("rsc1", gpus=16_384)), (4.95, 20.9, 1.98), (92.8, 70.2, 95.5)),
        (82.0, (33.8, 150, 13.4), (99.3, 96.7, 99.7)),
    ],
)
def test_intervals_and_shares_of_16384_gpus(mean_hours, minutes, percents):
    costs = ((7, 3 * MINUTE), (140, 15 * MINUTE), (1.1, 3 * MINUTE))
    for (write, restart), minute, percent in zip(costs, minutes, percents, strict=True):
        found = best_interval(write, mean_hours * HOUR)
        assert found / MINUTE == pytest.approx(minute, rel=2e-3)
        share = effective_share(found, write, restart, mean_hours * HOUR)
        assert 100 * share == pytest.approx(percent, abs=0.05)


@given(st.floats(1e-9, 50.0))
def test_no_interval_next_to_it_is_better(write):
    """Relative to a mean of 1: the derivative is zero, so a step of 1 % loses of the second order only."""
    best = best_interval(write, 1.0)
    share = effective_share(best, write, 0.0, 1.0)
    for factor in (0.99, 0.999, 1.001, 1.01):
        assert effective_share(factor * best, write, 0.0, 1.0) <= share * (1 + 1e-12)


def simulated_share(interval, write, restart, mean, *, interruptions, seed):
    """Work that survives, over the time it took: every interruption drawn, every interval replayed."""
    random = Random(seed)
    time = work = 0.0
    for _ in range(interruptions):
        left = random.expovariate(1 / mean)
        time += left
        left -= restart  # an interruption during the restart begins it again
        if left > 0:
            work += interval * (left // (interval + write))
    return work / time


@pytest.mark.parametrize(("write", "restart", "mean"), [(7.0, 180.0, 11_135.0), (140.0, 900.0, 6490.0), (60.0, 0, 600)])
def test_effective_share_is_that_of_simulated_runs(write, restart, mean):
    interval = best_interval(write, mean)
    found = effective_share(interval, write, restart, mean)
    assert found == pytest.approx(
        simulated_share(interval, write, restart, mean, interruptions=40_000, seed=3), rel=0.01
    )


def test_ends_of_the_range():
    assert best_interval(0.0, 100.0) == 0.0
    assert best_interval(5.0, inf) == inf
    assert best_interval(1e9, 1.0) == pytest.approx(1.0)
    assert effective_share(0.0, 0.0, 10.0, 100.0) == pytest.approx(0.9048, abs=1e-4)
    assert effective_share(90.0, 10.0, 5.0, inf) == 0.9
    assert effective_share(inf, 10.0, 5.0, inf) == 1.0
    assert effective_share(1e9, 1.0, 0.0, 1.0) == 0.0


@pytest.mark.parametrize(("write", "mean"), [(-1.0, 10.0), (1.0, 0.0), (float("nan"), 1.0)])
def test_times_that_cannot_be_are_refused(write, mean):
    with pytest.raises(ConfigError, match="wants a write of 0 s or more"):
        best_interval(write, mean)


@pytest.mark.parametrize(
    ("servers", "gigabytes", "seconds"), [(16, 25, 7), (16, 1.25, 140), (2048, 25, 0.05), (2048, 1.25, 1.1)]
)
def test_writes_of_175_billion_parameters(servers, gigabytes, seconds):
    found = write_seconds(16 * 175e9, servers=servers, server_bytes_per_second=gigabytes * 1e9)
    assert found == pytest.approx(seconds, rel=0.1)
