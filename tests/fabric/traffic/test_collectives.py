"""Collectives against a ring that is walked hop by hop, and the published and required figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.fabric.traffic.collectives import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    collective_seconds,
    fit_speed_up,
    ring_steps,
    speed_up,
    training_days,
)

GB = 1e9


def walked(kind, ranks):
    """(hops that follow each other, pieces of 1/ranks over one link) of a ring, walked step by step."""
    reduces = kind != "all_gather"
    held = [{(piece, rank) for piece in (range(ranks) if reduces else [rank])} for rank in range(ranks)]
    hops = 0
    for first in {"reduce_scatter": (0,), "all_gather": (0,), "all_reduce": (0, 1)}[kind]:
        for step in range(ranks - 1):
            sent = [
                {part for part in held[rank] if part[0] == (rank + first - step) % ranks} for rank in range(ranks)
            ]  # of every contribution that has arrived
            for rank in range(ranks):
                assert sent[rank] - held[(rank + 1) % ranks]
                held[(rank + 1) % ranks] |= sent[rank]
            hops += 1
    whole = {(piece, rank) for piece in range(ranks) for rank in (range(ranks) if reduces else [piece])}
    own = [{part for part in whole if part[0] == (rank + 1) % ranks} for rank in range(ranks)]
    assert all(have >= (mine if kind == "reduce_scatter" else whole) for have, mine in zip(held, own, strict=True))
    return hops, hops / ranks


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_factor_and_steps_are_those_of_a_walked_ring(kind, ranks):
    steps, share = walked(kind, ranks)
    assert ring_steps(kind, ranks) == steps
    assert bus_factor(kind, ranks) == pytest.approx(share)


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "send"])
def test_a_tensor_that_one_rank_has_crosses_each_link_once(kind):
    assert bus_factor(kind, 64) == 1.0


def test_a_rank_alone_exchanges_nothing():
    assert collective_seconds("all_reduce", 1e9, ranks=1, bus_bytes_per_second=1.0, latency_seconds=1.0) == 0.0


def test_seconds_are_latency_of_each_step_and_bytes_over_the_bus():
    found = collective_seconds("all_reduce", 8e9, ranks=4, bus_bytes_per_second=40e9, latency_seconds=0.001)
    assert found == pytest.approx(6 * 0.001 + 2 * 3 / 4 * 8 / 40)


def test_64_ranks_at_50_gigabytes_a_second_of_bus():
    assert algorithm_bandwidth("all_reduce", ranks=64, bus_bytes_per_second=50.0) == pytest.approx(25.4, abs=0.05)
    assert 20 * bus_factor("all_reduce", 64) == pytest.approx(39.4, abs=0.05)


def test_a_ring_that_crosses_servers_has_the_nic_of_each_member():
    def bus(members, crosses):
        return bus_bandwidth(
            members_per_server=members, intra_bytes_per_second=200.0, nic_bytes_per_second=50.0, efficiency=0.8,
            crosses_servers=crosses,
        )  # fmt: skip

    assert [bus(1, True), bus(2, True), bus(8, True), bus(8, False)] == pytest.approx([40, 80, 200, 200])


@pytest.mark.parametrize(
    ("gigabytes", "percent"),
    [(5, 69.6), (6.25, 74.1), (10, 82.1), (12.5, 85.1), (20, 90.2), (25, 92.0), (50, 95.8)],
)
def test_speed_up_of_the_reference_curve(gigabytes, percent):
    share = speed_up(traffic_bytes_per_second=2.182 * GB, algorithm_bytes_per_second=gigabytes * GB)
    assert 100 * share == pytest.approx(percent, abs=0.05)


def test_hidden_traffic_costs_nothing_and_never_helps():
    assert speed_up(traffic_bytes_per_second=1.0, algorithm_bytes_per_second=10.0, overlap=0.5) == 1.0


def test_the_two_reference_points_leave_no_room_for_overlap():
    found = fit_speed_up([(5 * GB, 0.70), (20 * GB, 0.90)])
    assert found.traffic_bytes_per_second == pytest.approx(2.116 * GB, rel=1e-3)
    assert found.overlap == pytest.approx(-0.005, abs=5e-4)
    assert found.residual == pytest.approx(0.0, abs=1e-12)


@given(st.floats(0.1, 10.0), st.floats(0.0, 0.05), st.lists(st.floats(1.0, 50.0), min_size=2, max_size=6, unique=True))
def test_a_fit_finds_the_model_that_made_its_points(traffic, overlap, bandwidths):
    if max(bandwidths) / min(bandwidths) < 1.5 or traffic / max(bandwidths) <= overlap:
        return
    points = [(b, speed_up(traffic_bytes_per_second=traffic, algorithm_bytes_per_second=b, overlap=overlap))
              for b in bandwidths]  # fmt: skip
    found = fit_speed_up(points)
    assert found.traffic_bytes_per_second == pytest.approx(traffic, rel=1e-6)
    assert found.overlap == pytest.approx(overlap, abs=1e-6)


def test_a_fit_wants_two_bandwidths():
    with pytest.raises(ConfigError, match="two different bandwidths"):
        fit_speed_up([(1.0, 0.5), (1.0, 0.6)])


@pytest.mark.parametrize(
    ("parameters", "tokens", "gpus", "rate", "days"),
    [(175e9, 300e9, 1024, 140e12, 33.9), (1e12, 450e9, 3072, 163e12, 83.2)],
)
def test_days_of_published_trainings(parameters, tokens, gpus, rate, days):
    found = training_days(parameters=parameters, tokens=tokens, gpus=gpus, flops_per_second=rate, recompute=True)
    assert found == pytest.approx(days, abs=0.05)
