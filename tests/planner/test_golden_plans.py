"""What `auto` gives models that everybody knows, on GPUs that deliver what is written down: read in review."""

from dataclasses import replace

import pytest
from tests.planner.cases import RATES, SITE, TRACED, cpu, gpus, line
from tests.planner.formula.test_reference_case import SITE as A100S
from tests.planner.transformers import EIGHT, H100, MIXTURE, ONE, transformer

from gangline.planner.choice import choose_plan
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.plans import make_plan
from gangline.spec.config.line import MeshTable
from gangline.spec.data_source import DataSource
from gangline.spec.transformer import Transformer

GOLDEN = {
    "1B on 8": (ONE, 4096, 256, gpus(8), "ddp-8", 2, "none", 2.94),
    "1B on 8, a sample a rank": (ONE, 4096, 8, gpus(8), "fsdp-8", 1, "none", 0.133),
    "8B on 8": (EIGHT, 4096, 256, gpus(8), "fsdp-8", 1, "selective", 20.8),
    "8B on 64": (EIGHT, 4096, 512, gpus(8, 8), "fsdp-64", 1, "none", 5.24),
    "8B on 256": (EIGHT, 4096, 1024, gpus(8, 32), "fsdp-256", 1, "none", 2.69),
    "experts on 8": (MIXTURE, 4096, 256, gpus(8), "ddp-8", 1, "none", 2.32),
    "128k places on 8": (EIGHT, 131_072, 8, gpus(8), "cp-8", 2, "full", 71.4),
}


@pytest.mark.parametrize(
    ("shape", "sequence", "batch", "there", "name", "micro_batch", "again", "seconds"), GOLDEN.values(), ids=GOLDEN
)
def test_known_models_get_the_plan_that_was_reviewed(shape, sequence, batch, there, name, micro_batch, again, seconds):
    choice = choose_plan(line(batch=batch), H100, there, transformer(**shape, sequence=sequence))
    assert (choice.name, choice.micro_batch, choice.memory.activation_checkpointing) == (name, micro_batch, again)
    assert choice.forecast.step_seconds == pytest.approx(seconds, rel=0.005)
    assert choice.forecast.money == pytest.approx(choice.forecast.wall_seconds / 3600 * choice.mesh.world_size * 2.0)


SEVENTY = Transformer(
    layers=80, width=8192, heads=64, key_value_heads=8, feed_width=28_672, vocabulary=128_256, sequence=4096
)
"""70.6e9 parameters, as of Llama 3 70B."""
MIXED = Transformer(
    layers=32, width=4096, heads=32, key_value_heads=8, feed_width=14_336, vocabulary=32_000, sequence=4096,
    experts=8, active_experts=2,
)  # fmt: skip
"""46.7e9, as of Mixtral 8x7B; a token takes 2 of 8 experts."""
BY_FORMULA = {
    "70B on 512": (SEVENTY, 64, 1024, {}, "pp2 cp4 tp4 zero2-16", 28.014),
    "experts on 64": (
        MIXED,
        8,
        512,
        {"micro_batch": 1, "pp": 4, "cp": 1, "tp": 4, "dp_shard": 4},
        "pp4 tp4 zero2-4",
        20.929,
    ),
    "experts on 64, dealt out": (MIXED, 8, 512, {"micro_batch": 1, "dp_shard": 64, "ep": 8}, "ep8 fsdp-64", 33.680),
}


@pytest.mark.parametrize(("model", "nodes", "batch", "degrees", "name", "seconds"), BY_FORMULA.values(), ids=BY_FORMULA)
def test_models_known_by_their_shape_get_the_plan_that_was_computed_by_hand(
    model, nodes, batch, degrees, name, seconds
):
    """A100 of the reference case: 140 TFLOP/s, 200 GB/s inside a server, 40 GB/s a NIC, 2 TB/s of memory."""
    mesh = MeshTable(pp_schedule="1f1b", **degrees)
    asked = line(batch=batch, steps=1000, mesh=mesh, strategy="explicit" if degrees else "auto")
    choice = choose_plan(asked, A100S, gpus(8, nodes, name="a100"), formula_profile(model))
    again = 4 if choice.memory.activation_checkpointing == "full" else 3
    assert (choice.name, choice.micro_batch) == (name, 1)
    assert choice.forecast.step_seconds == pytest.approx(seconds, rel=0.0005)
    assert choice.forecast.step_seconds == pytest.approx(
        step_by_hand(model, choice.mesh, batch, again=again, sync=choice.memory.gradient_sync)
    )


def step_by_hand(model, mesh, batch, *, again, sync):
    """Seconds: passes of single samples, 1F1B with the best division of blocks, zero2 with stages and fsdp without."""
    h, kv, f, words, s = model.width, model.key_width, model.feed_width, model.vocabulary, model.sequence
    pp, cp, tp, ep, shards = mesh.pp, mesh.cp, mesh.tp, mesh.ep, mesh.dp_shard * mesh.cp
    router = h * model.experts if model.experts > 1 else 0
    attention, expert = 2 * h * h + 2 * h * kv, 3 * h * f
    block_parameters = attention + model.experts * expert + router + 2 * h
    tokens, rate = s / cp, tp * 140e12
    flops = 2 * (attention + model.active_experts * expert + router) + 2 * h * s
    block = again * flops * tokens / rate
    block += 2 * (again - 1) * 2 * (tp - 1) / tp * 2 * tokens * h / 200e9
    block += max(0, 3 * (cp - 1) * 4 * kv * tokens / tp / 40e9 - 3 * 2 * h * s * tokens / rate) if cp > 1 else 0
    block += 2 * (again - 1) * (ep - 1) / ep * model.active_experts * tokens * h * 2 / tp / 200e9
    head = 3 * 2 * words * h * tokens / rate
    hands_on = 4 * tokens * h / tp / 40e9 if pp > 1 else 0
    micro_batches = batch // mesh.data_parallel
    early = (
        min(range(1, model.layers), key=lambda n: max(n, model.layers - n * (pp - 1) + head / block)) if pp > 1 else 0
    )
    blocks = [early] * (pp - 1) + [model.layers - early * (pp - 1)]
    stages = [count * block + hands_on for count in blocks]
    stages[-1] += head
    passes = (micro_batches - 1) * max(stages) + sum(stages)
    held = [count * block_parameters for count in blocks]
    held[0] += words * h
    held[-1] += words * h + h
    most, share = max(held) / tp, (shards - 1) / shards
    gathers, reductions = (1 if pp > 1 else 2 * micro_batches), (micro_batches if sync == "each" else 1)
    bus = min(200e9, max(1, 8 // tp) * 40e9)
    exchange = share * (gathers * 2 + reductions * 4) * most / bus
    return passes + exchange + 30 * most / shards / 2e12


def test_two_ranks_of_a_laptop_hold_copies():
    choice = choose_plan(line(), SITE, cpu(2), TRACED, rates=RATES)
    assert (choice.name, choice.micro_batch, choice.forecast.money) == ("ddp-2", 8, 0.0)
    assert [each.name for each in choice.candidates[1:3]] == ["zero1-2", "pp-2"]


def test_over_a_slow_network_stages_hand_on_less_than_shards_gather():
    """At a hundredth of the bandwidth no computing hides what 64 ranks gather at each pass."""
    slow = replace(H100, gpu={"h100": replace(H100.gpu["h100"], network_bytes_per_second=4e8)})
    choice = choose_plan(line(batch=512), slow, gpus(8, 8), transformer(**EIGHT, sequence=4096))
    assert choice.name == "pp-4x16"


def test_equal_questions_give_plans_of_equal_bytes():
    def plan():
        asked = line(batch=64)
        choice = choose_plan(asked, H100, gpus(8), transformer(**ONE, sequence=4096))
        return make_plan(asked, choice, run="r", run_prefix="p", data=DataSource()).to_json()

    assert plan() == plan()
