"""What stages compute when blocks cannot be shared evenly, and what a pipeline waits for then."""

import pytest
from tests.planner.cases import line
from tests.planner.transformers import EIGHT, transformer

from gangline.planner.layouts.bubble import bubble
from gangline.planner.layouts.pipeline import SIMULATED_PER_STAGE, idle_share, stage_weights
from gangline.spec.mesh import Mesh

TRACE = transformer(**EIGHT, sequence=4096).traces[0]
HEAD, BLOCK = (unit.flops for unit in TRACE.units)


@pytest.mark.parametrize("stages", [1, 2, 5, 8, 32])
def test_weights_are_all_the_work_there_is(stages):
    weights = stage_weights(TRACE, stages)
    assert len(weights) == stages
    assert sum(weights) == pytest.approx(TRACE.flops_per_sample)


def test_the_last_stage_has_the_head_and_fewer_blocks_for_it():
    """The runtime cuts by parameters: those of the head are worth two blocks and more, as those before the first."""
    weights = stage_weights(TRACE, 8)
    blocks = [round((each - HEAD * (number == 7)) / BLOCK) for number, each in enumerate(weights)]
    assert blocks == [2, 4, 4, 5, 5, 5, 5, 2]
    assert weights[-1] < max(weights)


def test_models_that_no_one_followed_or_that_have_too_few_blocks_have_no_weights():
    assert stage_weights(None, 2) == stage_weights(TRACE, 64) == ()


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved_1f1b", "zbv", "dualpipev"])
@pytest.mark.parametrize("trace", [None, TRACE], ids=["equal", "as cut"])
def test_a_long_step_idles_as_if_it_were_played_to_its_end(schedule, trace):
    ranks, count = 4, 4 * SIMULATED_PER_STAGE * 4
    weights = stage_weights(trace, ranks if schedule in ("gpipe", "1f1b") else 2 * ranks)
    whole = bubble(schedule, ranks, count, weights=weights).bubble
    assert idle_share(line(batch=count), Mesh(pp=ranks), 1, schedule, trace) == pytest.approx(whole, abs=2e-4)
