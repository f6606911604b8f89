"""A step's parts: each follows what it is made of, their sum is the step, and corrections go where they belong."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.cases import RATES, SITE, TRACED, cpu, earlier, gpus, line, step_load_of

from gangline.planner.choice import choose_plan
from gangline.planner.cost.exchange import sent_share, wire_bytes
from gangline.planner.cost.speeds import interpolate, speeds_of
from gangline.planner.cost.step_time import UPDATE_MOVES
from gangline.planner.cost.traffic import collectives, unknown_traffic
from gangline.planner.forecast import calibrated_site
from gangline.planner.layouts.layout import Layout, layout_of
from gangline.planner.pool import open_pool
from gangline.planner.request import PlanRequest
from gangline.spec.config.line import CheckpointTable, MemoryTable, MeshTable
from gangline.spec.config.site import GpuTable, Site, SitePlanTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Compression

GRADIENTS = 4 * TRACED.parameters


def question(history=(), *, site=SITE, rates=RATES, profile=TRACED, inventory=None, **train):
    return PlanRequest.about(line(**train), site, inventory or cpu(2), profile, history, rates=rates)


def forecast(name="ddp", world=2, history=(), **more):
    return question(history, **more).forecast(layout_of(name, world))


def terms(found):
    return {term.part: term.seconds for term in found.terms}


@pytest.mark.parametrize("name", ["ddp", "fsdp", "zero1", "zero2"])
def test_the_parts_sum_to_the_step_and_saves_are_in_the_whole_run(name):
    found = forecast(name)
    parts = terms(found)
    assert found.step_seconds == pytest.approx(sum(parts.values()) - parts["checkpoint"])
    assert found.wall_seconds == pytest.approx(120 * sum(parts.values()))
    assert parts["checkpoint"] > 0
    assert found.missing == ""


def test_computing_is_products_by_their_rate_and_moves_by_what_they_move():
    """8 samples in one pass: 8 GFLOP at 1 TFLOP/s, and 200 moves of 80 kB between two measured sizes."""
    each = interpolate([(4096, 1e-6), (2**20, 1e-4)], 80_000)
    assert terms(forecast())["compute"] == pytest.approx(8e-3 + 200 * each)
    assert 1e-6 < each < 1e-4


def test_an_update_and_a_save_move_the_moments_of_the_optimizer():
    """Bytes of a parameter: an update streams 14 and each moment twice, a save copies its weight and its moments."""

    def parts(table):
        asked = replace(line(), optimizer={"elementwise": table})
        return terms(PlanRequest.about(asked, SITE, cpu(2), TRACED, (), rates=RATES).forecast(layout_of("ddp", 2)))

    adamw, momentum, plain = map(parts, ({}, {"rule": "sgd", "momentum": 0.9}, {"rule": "sgd"}))
    stream = TRACED.parameters / RATES.memory_bytes_per_second
    assert adamw["optimizer"] - momentum["optimizer"] == pytest.approx(8 * stream)
    assert momentum["optimizer"] - plain["optimizer"] == pytest.approx(8 * stream)
    assert adamw["checkpoint"] == pytest.approx(1.5 * momentum["checkpoint"])
    assert adamw["checkpoint"] == pytest.approx(3 * plain["checkpoint"])


def test_what_is_computed_again_takes_its_time_again():
    """A third of both passes is the forward one; `selective` keeps what products made."""
    plain, full, some, half = (
        terms(forecast(memory=MemoryTable(activation_checkpointing=word)))["compute"]
        for word in ("none", "full", "selective", "every_2")
    )
    assert full == pytest.approx(4 / 3 * plain, rel=0.02)
    assert plain < some < half < full


@given(size=st.floats(min_value=1, max_value=2**30))
def test_a_larger_message_never_takes_less(size):
    points = [(1024.0, 1e-4), (2.0**20, 1e-3), (2.0**23, 1e-2)]
    assert interpolate(points, size) <= interpolate(points, 2 * size)
    assert interpolate(points, 2.0**20) == pytest.approx(1e-3)


@pytest.mark.parametrize(("name", "share"), [("ddp", 1.0), ("zero1", 1.5), ("zero2", 1.5), ("fsdp", 2.0)])
def test_wire_bytes_are_those_of_the_table_that_was_measured(name, share):
    """To DDP, on gloo: training.md 2.1. The root's parameters stay whole between the passes."""
    shape = layout_of(name, 2)
    sent = wire_bytes(
        collectives(TRACED, shape, step_load_of(micro_batch=8, micro_batches=1, precision="fp32")), device="cpu"
    )
    root = 4 * 80_000 * 0.5 if name == "fsdp" else 0
    assert sent == pytest.approx(share * GRADIENTS - root)


def test_what_is_sent_follows_the_ring():
    assert sent_share("all_reduce", 4, "cpu") == sent_share("reduce_scatter", 4, "cpu") == 1.5
    assert sent_share("reduce_scatter", 4, "cuda") == sent_share("all_gather", 4, "cpu") == 0.75


def test_accumulation_gathers_again_but_reduces_once():
    once, four = (
        {(each.kind, each.size_bytes): each.count for each in collectives(TRACED, layout_of("fsdp", 2), load)}
        for load in (step_load_of(micro_batch=8, micro_batches=n, precision="fp32") for n in (1, 4))
    )
    assert {kind: four[kind, size] / once[kind, size] for kind, size in once} == {"all_gather": 4, "reduce_scatter": 1}


def test_gradients_squeezed_to_half_take_half_the_wire_and_less_time():
    whole, half = forecast(), forecast(compression=Compression(kind="bf16"))
    assert half.wire_bytes == pytest.approx(whole.wire_bytes / 2)
    assert terms(half)["communication"] < terms(whole)["communication"]


def test_traffic_of_what_no_one_looked_at_leaves_no_step_time():
    found = forecast(compression=Compression(kind="topk"))
    assert (found.step_seconds, found.wire_bytes) == (None, None)
    assert "topk" in found.missing
    load = step_load_of(micro_batch=1, micro_batches=1, precision="fp32")
    assert "experts" in unknown_traffic(TRACED, Layout("ep", Mesh(dp_shard=2, ep=2)), load)


def test_overlap_hides_communication_as_far_as_there_is_computing():
    hidden = Site(plan=SitePlanTable(overlap=1.0))
    assert terms(forecast())["communication"] > 0
    assert terms(forecast(site=hidden))["communication"] == 0


def test_ranks_that_share_cores_take_turns():
    two, eight = (forecast(world=world, batch=16, ranks=world) for world in (2, 8))
    assert terms(eight)["compute"] == pytest.approx(terms(two)["compute"], rel=0.35)  # a quarter each, four at a time
    assert terms(eight)["communication"] > 4 * terms(two)["communication"]


def test_a_pipelines_bubble_is_its_share_of_the_ranks_time():
    asked = line(strategy="pp", mesh=MeshTable(micro_batch=2))
    found = choose_plan(asked, SITE, cpu(2), TRACED, rates=RATES).forecast
    parts = terms(found)
    body = parts["compute"] + parts["communication"]
    assert found.bubble > 0
    assert parts["bubble"] / (body + parts["bubble"]) == pytest.approx(found.bubble)


def test_a_bias_of_one_part_is_taken_from_that_part():
    plain, corrected = forecast(), forecast(history=[earlier(3.0)] * 8)
    assert terms(corrected)["compute"] == pytest.approx(terms(plain)["compute"] * 3 ** (8 / 9))
    raw = {term.part: term.raw_seconds for term in corrected.terms}
    assert raw["compute"] == pytest.approx(terms(plain)["compute"])
    assert corrected.origin == "calibrated n=8"
    assert plain.origin == "rates measured"


def test_runs_of_another_processor_correct_nothing():
    assert forecast(history=[earlier(3.0, device_name="another")] * 8).origin == "rates measured"


def test_equal_runs_go_before_formulas_and_keep_what_these_said():
    shape = layout_of("fsdp", 2)
    found = question([earlier(4.0), earlier(6.0)]).forecast(shape)
    assert found.step_seconds == pytest.approx(0.05)
    assert found.origin == "measured n=2"
    compute = next(term for term in found.terms if term.part == "compute")
    assert compute.seconds == pytest.approx(0.05)
    assert compute.raw_seconds == pytest.approx(terms(forecast("fsdp"))["compute"])


def test_a_run_that_computed_again_or_took_other_passes_is_not_an_equal_one():
    same, other = ([replace(each, forecast=replace(each.forecast, way=way))] for each, way in
                   ((earlier(4.0), "micro_batch 8"), (earlier(4.0), "micro_batch 8, full computed again")))  # fmt: skip
    assert question(same).forecast(layout_of("fsdp", 2)).origin == "measured n=1"
    assert question(other).forecast(layout_of("fsdp", 2)).origin == "calibrated n=1"
    assert forecast("fsdp").way == "micro_batch 8"
    full = forecast("fsdp", memory=MemoryTable(activation_checkpointing="full"))
    assert full.way == "micro_batch 8, full computed again"


def test_data_and_the_rest_are_as_earlier_runs_had_them():
    past = replace(earlier(1.0), parts={"compute": 0.01, "data": 0.08, "other": 0.002})
    parts = terms(forecast(history=[past], batch=32))
    assert parts["data"] == pytest.approx(0.16)  # of 16 samples a rank, where it was 0.08 s of 8
    assert parts["other"] == pytest.approx(0.002)


def test_without_rates_there_is_no_time_and_why_is_said():
    found = forecast(rates=None)
    assert (found.step_seconds, found.terms) == (None, ())
    assert found.missing == "rates were not measured"
    assert forecast(profile=None).missing == "the size of the model is not known"
    assert forecast(profile=replace(TRACED, traces=(), untraced="no luck")).missing == "no luck"


def test_a_published_peak_bounds_one_gpu_and_says_nothing_of_links():
    half = replace(TRACED, traces=(replace(TRACED.traces[0], precision="bf16"),))
    found = forecast("none", 1, profile=half, rates=None, inventory=gpus(1, name="NVIDIA H100 80GB HBM3"))
    assert found.origin == "rates published"
    assert terms(found)["compute"] == pytest.approx(16e9 / 989e12 + 16 * 2e6 / 3.35e12)
    two = forecast(profile=half, rates=None, inventory=gpus(2, name="NVIDIA H100 80GB HBM3"))
    assert two.missing == "no rate is known for communication"
    assert two.step_seconds is None
    none = forecast(profile=half, rates=None, inventory=gpus(1, name="NVIDIA H100 NVL"))
    assert "no rate of NVIDIA H100 NVL in bf16 is known" in none.missing


def test_what_the_site_gives_is_called_given():
    table = GpuTable(memory_bytes=80e9, flops_per_second={"bf16": 1e14}, memory_bytes_per_second=1e12)
    half = replace(TRACED, traces=(replace(TRACED.traces[0], precision="bf16"),))
    found = forecast("none", 1, profile=half, rates=None, inventory=gpus(1, name="x"), site=Site(gpu={"x": table}))
    assert found.origin == "rates given"


def test_what_shards_copy_in_and_out_of_messages_is_computing():
    shape, load = layout_of("fsdp", 2), step_load_of(micro_batch=8, micro_batches=1, precision="fp32")
    moves = [(4096.0, 1e-6), (2.0**20, 1e-4)]
    copies = sum(each.count * interpolate(moves, 2 * each.size_bytes) for each in collectives(TRACED, shape, load))
    assert terms(forecast("fsdp"))["compute"] - terms(forecast())["compute"] == pytest.approx(copies)


def test_every_tensor_of_an_update_costs_however_small_it_is():
    many = forecast(profile=replace(TRACED, tensors=100))
    assert terms(many)["optimizer"] - terms(forecast())["optimizer"] == pytest.approx(100 * 20 * 1e-6)


ON_GPU = {"profile": replace(TRACED, traces=(replace(TRACED.traces[0], precision="bf16"),)), "inventory": gpus(1),
          "rates": replace(RATES, device="cuda", precision="bf16"), "precision": "bf16"}  # fmt: skip


def test_on_a_gpu_one_kernel_updates_many_tensors():
    few = terms(forecast("none", 1, **ON_GPU))["optimizer"]
    many = terms(forecast("none", 1, **ON_GPU | {"profile": replace(ON_GPU["profile"], tensors=100)}))["optimizer"]
    assert many - few == pytest.approx(100 * 1e-6)


def test_on_a_gpu_an_operation_takes_its_launch_and_its_bytes_as_a_stream_moves_them():
    """Not what operations of one size took, which copies in another order slow down."""
    rates, (trace,) = replace(RATES, device="cuda", precision="bf16"), ON_GPU["profile"].traces
    speeds = speeds_of(open_pool(SITE, gpus(1)), "bf16", trace, rates, world_size=1)
    assert speeds.move_seconds(2**20) == pytest.approx(1e-6 + 2**20 / 1e10)
    assert speeds.move_seconds(0) == pytest.approx(1e-6)


def test_saving_seldom_costs_less_a_step():
    often, seldom = (terms(forecast(checkpoint=CheckpointTable(every=every)))["checkpoint"] for every in (10, 100))
    assert often == pytest.approx(10 * seldom)


def test_a_site_learns_its_band_from_forecasts_and_keeps_its_own_until_then():
    asked = line()
    assert calibrated_site(asked, SITE, cpu(2), [], RATES) == SITE
    learned = calibrated_site(asked, SITE, cpu(2), [earlier(1.2)] * 12, RATES)
    assert learned.plan.band == pytest.approx(0.2)
    assert learned.plan.memory_margin == SITE.plan.memory_margin


def test_rates_of_another_precision_are_not_taken():
    pool = question().pool
    assert speeds_of(pool, "bf16", TRACED.traces[0], RATES, world_size=2) is None


@pytest.mark.parametrize(("name", "gathers", "sync", "reductions"), [
    ("fsdp", 8, "last", 1), ("fsdp", 8, "each", 4), ("zero2", 1, "last", 1),
])  # fmt: skip
def test_shards_on_the_host_cross_the_link_and_are_updated_in_its_memory(name, gathers, sync, reductions):
    """4 micro-batches; the shard of 2 GPUs over a link of 10e9, moments of AdamW in half of 100e9 bytes a second."""
    h100 = GpuTable(memory_bytes=80e9, host_link_bytes_per_second=10e9, host_memory_bytes_per_second=100e9)

    def parts(offload, table=h100):
        memory, site = MemoryTable(offload=offload, gradient_sync=sync), Site(gpu={"h100": table})
        return forecast(name, micro=2, site=site, memory=memory, **ON_GPU | {"inventory": gpus(2)})

    found = parts("cpu")
    here, there = terms(parts("none")), terms(found)
    shard = TRACED.parameters / 2
    assert found.missing == ""
    assert there["communication"] - here["communication"] == pytest.approx(4 * shard * (gathers + reductions) / 10e9)
    streamed = 30 * shard * (1 / 50e9 - 1 / RATES.memory_bytes_per_second)
    moves = (UPDATE_MOVES["cpu"] - UPDATE_MOVES["cuda"]) * TRACED.tensors * 1e-6
    assert there["optimizer"] - here["optimizer"] == pytest.approx(streamed + moves)
    assert there["compute"] == here["compute"]
    assumed = parts("cpu", replace(h100, host_link_bytes_per_second=None))
    assert [term.part for term in assumed.terms if term.origin.endswith(", host assumed")] == [
        "communication", "optimizer", "checkpoint",
    ]  # fmt: skip
