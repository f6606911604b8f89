"""What orders of servers make of a training: the table of the reference case, and what has to be known for it."""

from dataclasses import replace

import pytest

from gangline.errors import ConfigError
from gangline.fabric.placement.training import REFERENCE_FABRIC, TrainingCase, fabric_rate, order_forecasts
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.spec.config.fabric import FailureRates


def forecasts(fabric=REFERENCE_FABRIC, **options):
    return order_forecasts(fabric, TrainingCase(), **{"orders": ("plan", "random"), "connections": (1, 4)} | options)


@pytest.mark.parametrize(
    ("row", "crossings", "busiest", "efficiency", "gigabytes", "percent", "net", "wall", "hours"),
    [
        (0, 32, 1.0, 1.00, 20.0, 90.2, 13.6, 14.3, 5.61),
        (1, 1985, 3.2, 0.32, 6.4, 74.5, 16.4, 17.3, 6.80),
        (2, 1985, 6.0, 0.17, 3.3, 60.6, 20.2, 21.3, 8.36),
    ],
)
def test_table_of_the_reference_case(row, crossings, busiest, efficiency, gigabytes, percent, net, wall, hours):
    found = forecasts()[row]
    shown = (
        round(found.crossings), round(found.busiest_flows, 1), round(found.efficiency, 2),
        round(found.algorithm_bytes_per_second / 1e9, 1), round(100 * found.speed_up, 1), round(found.net_days, 1),
        round(found.wall_days, 1), round(found.gpu_hours / 1e6, 2),
    )  # fmt: skip
    assert shown == (crossings, busiest, efficiency, gigabytes, percent, net, wall, hours)


def test_connections_that_change_nothing_are_left_out():
    assert [(each.order, each.connections) for each in forecasts()] == [("plan", 1), ("random", 4), ("random", 1)]


def test_an_idle_network_that_sprays_makes_order_worth_nothing():
    plan, random = forecasts(replace(REFERENCE_FABRIC, path_policy="spray"), connections=(1,))
    assert plan.efficiency == random.efficiency == 1.0
    assert plan.wall_days == random.wall_days


def test_a_policy_that_is_not_known_gives_the_worst_and_the_best():
    found = forecasts(replace(REFERENCE_FABRIC, path_policy="unknown"), orders=("random",), connections=(1,))
    assert [each.policy for each in found] == ["hash", "spray"]
    assert found[0].wall_days > found[1].wall_days


def test_a_small_group_is_crossed_as_often_as_the_large_one_next_to_it():
    """At most three edges leave three servers: no fourth flow leaves the 1,000 others."""
    groups = tuple(
        Group(name=name, servers=tuple(f"{name}{at}" for at in range(size))) for name, size in (("a", 1000), ("b", 3))
    )
    (found,) = forecasts(replace(REFERENCE_FABRIC, groups=groups, leaf_uplinks=1), orders=("random",), connections=(1,))
    assert found.busiest_flows == pytest.approx(3.0)


def test_one_group_has_no_crossings():
    fabric = replace(REFERENCE_FABRIC, groups=REFERENCE_FABRIC.groups[:1], leaf_uplinks=None)
    assert [(each.crossings, each.busiest_flows) for each in forecasts(fabric, connections=())] == [(0, 0.0)] * 2


def test_required_days_of_100_and_8000_gpus():
    """More than 2,000 days on 100 GPUs, about 30 on 8,000 at the efficiency that this implies."""
    small = replace(REFERENCE_FABRIC, groups=(Group(name="g", servers=tuple(f"a{at}" for at in range(13))),), rails=8)
    (one,) = order_forecasts(small, TrainingCase(traffic_bytes_per_second=0.0), orders=("plan",), connections=(1,))
    assert one.net_days * small.num_gpus / 100 == pytest.approx(2002, abs=1)
    assert one.net_days * small.num_gpus / 8000 / (2000 * 100 / (8000 * 30)) == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize("key", ["nic_bytes_per_second", "leaf_uplinks"])
def test_what_is_not_known_is_asked_for(key):
    with pytest.raises(ConfigError, match=f"wanted fabric.{key} for a forecast, found none"):
        forecasts(replace(REFERENCE_FABRIC, **{key: None}))


def test_a_fabric_without_servers_has_no_forecast():
    with pytest.raises(ConfigError, match=r"wanted servers in fabric.groups"):
        forecasts(Fabric())


def test_every_part_of_the_network_counts_for_interruptions():
    rates = FailureRates(gpu_hours=1e5, server_hours=1e4, optic_hours=1e7, link_hours=1e6, leaf_hours=1e5)
    fabric = replace(REFERENCE_FABRIC, failures=rates)
    expected = 128 / 1e5 + 16 / 1e4 + 6 * 128 / 1e7 + 128 / 1e6
    assert fabric_rate(fabric, servers=16) == pytest.approx(expected + 2 / 1e5)
    assert fabric_rate(replace(fabric, dual_homed=True), servers=16) == pytest.approx(expected)
