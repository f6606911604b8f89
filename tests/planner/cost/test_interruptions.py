"""Interruptions and saves of a gang, against the published figures of storage and failures."""

from dataclasses import replace
from math import exp, inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.planner.cost.interruptions import mean_seconds_between, restart_time, storage_costs, with_interruptions
from gangline.spec.config.fabric import FailureRates
from gangline.spec.config.site import SitePlanTable
from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.profile import MeasuredRun

PLAN = SitePlanTable()


def costs(servers, plan=PLAN):
    found = storage_costs(plan, gpus=8 * servers, servers=servers, parameters=175e9, bytes_per_parameter=16)
    return {each.storage: each for each in found}


@pytest.mark.parametrize(("servers", "file", "objects"), [(16, 7.0, 140.0), (2048, 0.05, 1.1)])
def test_seconds_of_2_8_tb_at_200_and_10_gbit_a_server(servers, file, objects):
    found = costs(servers)
    assert found["file system"].write_seconds == pytest.approx(file, rel=0.1)
    assert found["object store"].write_seconds == pytest.approx(objects, rel=0.03)


def test_the_interval_and_what_is_left_at_16384_gpus():
    """By `llama3` 3.09 h between interruptions: writes of 1.1 s and restarts of 3 min leave 97.0 % of the time."""
    found = costs(2048)["object store"]
    assert found.interval_seconds / 60 == pytest.approx(2.60, rel=0.01)
    assert found.effective_share == pytest.approx(0.970, abs=0.0005)


FORECAST = Forecast(parameters=10**9, wall_seconds=36_000.0, gpu_hours=160.0, money=320.0)


def interrupted(plan, forecast=FORECAST, gpus=16, history=()):
    restart = restart_time(plan, history)
    return with_interruptions(forecast, plan, restart=restart, gpus=gpus, servers=2, parameters=1e9, moment_bytes=8)


def measured(restart_seconds):
    return MeasuredRun(
        run="r", strategy="ddp", mesh=Mesh(dp_replicate=2), device="cuda", precision="bf16", global_batch=8,
        micro_batch=4, step_seconds=1.0, restart_seconds=restart_seconds,
    )  # fmt: skip


def test_restarts_take_what_earlier_runs_measured_of_them():
    plan = replace(PLAN, saves_to="object store", restart_seconds=600.0)
    history = [measured(30.0), measured(None), measured(50.0)]
    given, known = interrupted(plan), interrupted(plan, history=history)
    assert (given.restart.seconds, given.restart.origin) == (600.0, "given")
    assert (known.restart.seconds, known.restart.origin) == (40.0, "measured n=2")
    assert known.wall_seconds == interrupted(replace(plan, restart_seconds=40.0)).wall_seconds < given.wall_seconds
    assert interrupted(replace(PLAN, saves_to="object store")).restart.origin == "default"
    assert interrupted(PLAN, history=history).restart is None, "nothing counts it"


def test_nothing_is_counted_for_saves_unless_the_site_says_where_they_go():
    found = interrupted(PLAN)
    assert (found.wall_seconds, found.money, found.effective_share) == (36_000.0, 320.0, 1.0)
    assert found.interrupt_probability == pytest.approx(1 - 2.718281828 ** (-16 * 10 / 50_677), rel=1e-4)


def test_time_hours_and_money_grow_by_what_is_lost_and_by_the_start():
    found = interrupted(replace(PLAN, saves_to="object store", start_seconds=100.0))
    assert found.wall_seconds == pytest.approx(36_000.0 / found.effective_share + 100.0)
    assert found.money / 320.0 == pytest.approx(found.wall_seconds / 36_000.0)
    assert found.gpu_hours / 160.0 == pytest.approx(found.wall_seconds / 36_000.0)


@given(gpus=st.integers(8, 16_384), rate=st.floats(1e8, 1e11))
def test_faster_storage_loses_less_and_more_gpus_are_interrupted_sooner(gpus, rate):
    slow, fast = (replace(PLAN, storage={"here": each}, saves_to="here") for each in (rate, 2 * rate))
    assert interrupted(fast, gpus=gpus).wall_seconds <= interrupted(slow, gpus=gpus).wall_seconds
    more, less = (interrupted(PLAN, gpus=each).interrupt_probability for each in (2 * gpus, gpus))
    assert more > less


@pytest.mark.parametrize(
    ("failures", "an_hour"),
    [
        ("hpn-link", 128 / (-730 / log(1 - 0.00057))), ("optics-10M", 6 * 128 / 10e6),
        (FailureRates(optic_hours=1e5), 6 * 128 / 1e5), (FailureRates(link_hours=1e3), 128 / 1e3),
        (FailureRates(leaf_hours=1e3), 2 / 1e3), (FailureRates(gpu_hours=1e4, link_hours=1e3), 128 / 1e4 + 128 / 1e3),
    ],
)  # fmt: skip
def test_links_optics_and_leaves_of_16_servers_interrupt_a_gang_of_them(failures, an_hour):
    """128 NICs, one a GPU, on leaves of 64, with six modules each on three tiers."""
    plan = replace(PLAN, failures=failures)
    found = with_interruptions(
        FORECAST, plan, restart=restart_time(plan, ()), gpus=128, servers=16, parameters=1e9, moment_bytes=8
    )
    assert found.interrupt_probability == pytest.approx(1 - exp(-10 * an_hour), rel=1e-6)
    assert mean_seconds_between(plan, gpus=128, servers=16) == pytest.approx(3600 / an_hour)


def test_a_gang_on_one_server_does_not_stop_for_the_network():
    plan = replace(PLAN, failures=FailureRates(link_hours=1.0, optic_hours=1.0, leaf_hours=1.0))
    assert mean_seconds_between(plan, gpus=8, servers=1) == inf


def test_what_has_no_time_gets_none():
    assert interrupted(PLAN, Forecast(parameters=10**9)).interrupt_probability is None
