"""What `auto` gives models that everybody knows, on GPUs that deliver what is written down: read in review."""

from dataclasses import replace

import pytest
from tests.planner.cases import RATES, SITE, TRACED, cpu, gpus, line
from tests.planner.transformers import EIGHT, H100, MIXTURE, ONE, transformer

from gangline.planner.gang_plans import make_plan
from gangline.planner.selection.choice import choose_plan
from gangline.spec.plan import DataSource

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
