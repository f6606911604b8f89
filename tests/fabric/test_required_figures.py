"""Figures that the specification requires, a test each, with the model under which it holds; refuted readings, too.

Sizes in words (Q1) are in `test_inventory`, days of 100 and 8,000 GPUs (Q5) in `test_training`.
"""

from dataclasses import replace
from itertools import permutations

import pytest
from tests.planner.formula.reference import R1, SPACE, USABLE

from gangline.fabric.reliability.failures import PRESETS, interrupt_probability, interruption_rate, longest_loss_seconds
from gangline.fabric.reliability.interval import write_seconds
from gangline.fabric.topology.clos import clos_counts
from gangline.fabric.traffic.collectives import algorithm_bandwidth, bus_factor, fit_speed_up, speed_up
from gangline.fabric.traffic.paths import hashed_load
from gangline.fabric.traffic.rings import ring_crossings
from gangline.planner.formula.evaluate import evaluate
from gangline.planner.formula.memory import state_memory
from gangline.planner.layouts.bubble import bubble
from gangline.planner.layouts.layout import WrappedLayout
from gangline.spec.mesh import Mesh
from gangline.spec.strategies import DDP, FSDP, ZERO1
from gangline.spec.transformer import Transformer

GB, MONTH = 1e9, 730.0
STATE_BYTES = 16
"""A parameter, of AdamW in mixed precision."""
LARGE = Transformer(
    layers=112, width=13_824, heads=108, feed_width=4 * 13_824, vocabulary=51_200, sequence=2048, gated=False
)


def groups_of(mesh, axis):
    """Ranks that differ on one axis only."""
    found = {}
    for rank in range(mesh.world_size):
        place = mesh.coordinates(rank)
        found.setdefault(tuple(at for name, at in place.items() if name != axis), []).append(rank)
    return list(found.values())


def state_bytes(wrapping, ranks, *, sync="each"):
    """Of a parameter on one of `ranks` data-parallel ranks, in float32: 4 weights, 4 gradients, 8 of AdamW."""
    mesh = Mesh(dp_shard=ranks) if wrapping.shards else Mesh(dp_replicate=ranks)
    question = replace(R1, precision="fp32")
    return sum(state_memory(question, WrappedLayout.of(mesh=mesh, wrapping=wrapping), 1.0, sync=sync))


def test_q2_gpus_that_hold_260_billion_parameters():
    """1 to 2 billion a GPU with their state, beside activations: 130 to 260, in whole servers 136 and 256."""
    assert LARGE.parameters == pytest.approx(260e9, rel=0.01)
    assert (260e9 / 2e9, 260e9 / 1e9) == (130, 260)
    assert 2e9 * state_bytes(DDP, 1) == 32e9 < USABLE / 2
    for gpus in (136, 256):
        assert any(each.fits for each in plans_of(gpus, recompute=("none",)))


def test_q2_is_not_about_the_state_alone():
    """It would fill 80 GB at 5 billion parameters: 52 GPUs, on which no activations fit."""
    assert 260e9 * state_bytes(DDP, 1) / 80e9 == 52
    assert not any(each.fits for each in plans_of(56, recompute=("none", "selective", "full")))


def plans_of(gpus, *, recompute):
    space = replace(
        SPACE, world_size=gpus, global_batch=8 * gpus, pp=[each for each in (1, 2, 4, 7, 8) if gpus % each == 0],
        recompute=recompute, micro_batches=(1,),
    )  # fmt: skip
    return evaluate(replace(R1, model=LARGE, space=space)).plans


def test_q3_groups_of_tensor_8_pipeline_4_data_3():
    mesh = Mesh(pp=4, dp_shard=3, tp=8)
    assert mesh.coordinates(1 + 8 * (2 + 3 * 3)) == mesh.coordinates(89) == {
        "pp": 3, "dp_replicate": 0, "dp_shard": 2, "cp": 0, "tp": 1
    }  # fmt: skip
    assert [(len(groups_of(mesh, axis)), len(groups_of(mesh, axis)[0])) for axis in ("dp_shard", "pp", "tp")] == [
        (32, 3), (24, 4), (12, 8)
    ]  # fmt: skip
    assert all(len({rank % 8 for rank in group}) == 1 for group in groups_of(mesh, "dp_shard")), "one rail each"


def test_q4_bytes_that_a_gpu_reduces():
    assert pytest.approx(10.94, abs=5e-3) == 2 * 175e9 / (8 * 4) / GB


def test_q6_speed_up_of_two_bandwidths():
    """At 5 GB/s 70 %, at 20 GB/s 90 %: traffic of 2.143 and 2.222 GB a second of computation."""
    traffic = [(1 / share - 1) * bandwidth for bandwidth, share in ((5, 0.7), (20, 0.9))]
    assert traffic == pytest.approx([2.143, 2.222], abs=5e-4)
    assert (traffic[0] * traffic[1]) ** 0.5 == pytest.approx(2.182, abs=5e-4)
    shares = [speed_up(traffic_bytes_per_second=2.166, algorithm_bytes_per_second=each) for each in (5, 20)]
    assert [100 * share for share in shares] == pytest.approx([69.8, 90.2], abs=0.05)
    assert fit_speed_up([(5 * GB, 0.7), (20 * GB, 0.9)]).overlap < 0


def test_q7_20_gigabytes_a_second_of_algorithm_fill_a_nic_of_400_gigabits():
    assert 20 * bus_factor("all_reduce", 2**20) == pytest.approx(40)
    assert 40 / (400 / 8) == 0.80


def test_q8_q9_a_month_survived_by_so_many_devices():
    chances = [interrupt_probability(interruption_rate(preset, gpus=gpus), MONTH)
               for preset, gpus in (("month-99.9", 1000), ("month-99.99", 8000))]  # fmt: skip
    assert [100 * chance for chance in chances] == pytest.approx([63.2, 55.1], abs=0.05)


def test_q8_is_not_about_uptime():
    """99.9 % of the time up, at repairs of 4 h, would be 183 failures a month: no 60 % of one."""
    mean = 4 * 0.999 / (1 - 0.999)
    assert 1000 * MONTH / mean == pytest.approx(183, abs=0.5)
    assert interrupt_probability(1000 / mean, MONTH) > 0.9999


def test_q10_q11_counts_of_two_networks():
    small, large = clos_counts(3000, radix=40), clos_counts(16_384, radix=128)
    assert (small.switches, small.cables, small.optics) == (375, 9000, 18_000)
    assert (large.leaves, large.spines, large.cores, large.cables) == (256, 256, 128, 49_152)
    servers_a_group = 128 // 2
    assert large.leaves // 8 * servers_a_group * 8 == 32 * 512 == 16_384


def test_q12_optics_fail_every_four_days():
    assert PRESETS["optics-10M"].optic_hours / 24 / 100_000 == pytest.approx(4.17, abs=5e-3)
    assert PRESETS["optics-10M"].optic_hours / 24 / 98_304 == pytest.approx(4.24, abs=5e-3)


def test_q13_two_flows_on_two_uplinks():
    found = hashed_load(((2, 1),), uplinks=2)
    assert (found.busiest_flows, found.efficiency) == pytest.approx((1.5, 0.75))


def test_q14_good_and_bad_rings_of_four_gpus_on_two_switches():
    names = dict(zip("abcd", "sstt", strict=True))
    counts = [ring_crossings(order, names) for order in permutations("abcd")]
    assert (min(counts), max(counts)) == (2, 4)
    assert sum(counts) / len(counts) == pytest.approx(2.67, abs=5e-3)


def test_q15_loss_shorter_than_the_time_out():
    assert [longest_loss_seconds(timeout) for timeout in (20, 18, 22)] == pytest.approx([30.1, 7.5, 120], rel=5e-3)


def test_q16_100_gigabits_measured_in_both_readings():
    as_bus = algorithm_bandwidth("all_reduce", ranks=2**20, bus_bytes_per_second=12.5)
    assert as_bus == pytest.approx(6.25, abs=1e-3)
    shares = [speed_up(traffic_bytes_per_second=2.182, algorithm_bytes_per_second=each) for each in (as_bus, 12.5)]
    assert [100 * share for share in shares] == pytest.approx([74, 85], abs=0.5)


@pytest.mark.parametrize(
    ("servers", "gigabits", "seconds"), [(16, 200, 7), (16, 10, 140), (2048, 200, 0.05), (2048, 10, 1.1)]
)
def test_q17_writes_to_a_file_system_and_an_object_store(servers, gigabits, seconds):
    size = STATE_BYTES * 175e9
    assert size == 2.8e12
    found = write_seconds(size, servers=servers, server_bytes_per_second=gigabits * 1e9 / 8)
    assert found == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize(("exposed", "percent"), [(0.0204, 98), (0.1111, 90)])
def test_q18_exposed_traffic_of_efficient_data_parallelism(exposed, percent):
    share = speed_up(traffic_bytes_per_second=exposed, algorithm_bytes_per_second=1.0)
    assert 100 * share == pytest.approx(percent, abs=0.01)


def test_q19_micro_batches_that_use_eight_stages_for_70_to_85_percent():
    within = [count for count in range(8, 60) if 0.70 <= 1 - bubble("1f1b", 8, count).bubble <= 0.85]
    assert (min(within), max(within)) == (17, 39)


@pytest.mark.parametrize(("ranks", "saved"), [(8, 1 - 1 / 8), (5, 0.80), (1, 0.0)])
def test_q20_shards_save_state(ranks, saved):
    """8 times as little on 8 ranks, 80 % less on 5."""
    assert 1 - state_bytes(FSDP, ranks) / state_bytes(DDP, ranks) == pytest.approx(saved)


def test_q20_is_about_the_state_of_all_three():
    """Of the optimizer alone it is half at most, and whole gradients leave 5.5 of 16 bytes, no eighth."""
    assert 1 - state_bytes(ZERO1, 10**6) / state_bytes(DDP, 10**6) == pytest.approx(0.5, abs=1e-5)
    assert state_bytes(DDP, 8) / state_bytes(FSDP, 8, sync="last") == pytest.approx(16 / (4 + 12 / 8))
