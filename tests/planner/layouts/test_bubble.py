"""Orders of schedules against torch's own tables, and what they leave idle against the figures that are known."""

from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.planner.layouts.bubble import (
    accepts_micro_batches,
    bubble,
    require_schedule,
    runnable_schedules,
)
from gangline.planner.layouts.schedules import SINGLE, Action, num_stages, orders, owner_of, stages_of

SCHEDULES = ["gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv", "dualpipev"]
SIZES = [(4, 8), (4, 16), (8, 16)]
any_schedule = st.sampled_from(SCHEDULES)


def torch_tables(schedule, ranks, micro_batches):
    """What torch's own schedule does, by rank; communication and idle slots left out."""
    from torch.distributed.pipelining import schedules

    made = {
        "gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B,
        "interleaved_1f1b": schedules.ScheduleInterleaved1F1B, "looped_bfs": schedules.ScheduleLoopedBFS,
        "interleaved_zero_bubble": schedules.ScheduleInterleavedZeroBubble, "zbv": schedules.ScheduleZBVZeroBubble,
        "dualpipev": schedules.ScheduleDualPipeV,
    }  # fmt: skip
    stages = [
        MagicMock(num_stages=num_stages(schedule, ranks), group_size=ranks, group_rank=0, stage_index=each, submod=None)
        for each in stages_of(schedule, ranks, 0)
    ]
    table = made[schedule](stages[0] if schedule in SINGLE else stages, micro_batches).pipeline_order
    return [[step for each in table[rank] if each is not None and (step := ours(each))] for rank in range(ranks)]


def ours(action):
    parts = action.sub_actions or (action,)
    kinds = [each.computation_type.value for each in parts]
    if any(kind not in "FBIW" for kind in kinds):
        return ()
    return tuple(Action(kind, each.stage_index, each.microbatch_index) for kind, each in zip(kinds, parts, strict=True))


@pytest.mark.parametrize(
    ("schedule", "ranks", "micro_batches"),
    [
        (schedule, *size)
        for schedule in SCHEDULES
        for size in [(2, 4), (3, 7), (4, 8), (4, 10), (8, 16), (8, 17)]
        if accepts_micro_batches(schedule, *size)
    ],
)
def test_order_is_that_of_torch(schedule, ranks, micro_batches):
    """torch's private table of 1F1B leaves out micro-batch 0 on the last rank, what it runs does not."""
    checked = ranks - 1 if schedule == "1f1b" else ranks
    assert orders(schedule, ranks, micro_batches)[:checked] == torch_tables(schedule, ranks, micro_batches)[:checked]


@pytest.mark.parametrize(
    ("schedule", "idle", "live"),
    [
        ("gpipe", (0.273, 0.158, 0.304), (8, 16, 16)),
        ("1f1b", (0.273, 0.158, 0.304), (4, 4, 8)),
        ("interleaved_1f1b", (0.158, 0.086, 0.179), (5.5, 5.5, 11.5)),
        ("looped_bfs", (0.158, 0.086, 0.179), (8, 16, 16)),
        ("interleaved_zero_bubble", (0.059, 0.030, 0.068), (4, 4, 8)),
        ("zbv", (0.059, 0.030, 0.068), (4, 4, 8)),
        ("dualpipev", (0.111, 0.059, 0.127), (4.5, 4.5, 8.5)),
    ],
)
def test_bubble_and_live_micro_batches_are_the_known_ones(schedule, idle, live):
    """Forward and both halves of backward last alike."""
    found = [bubble(schedule, *size) for size in SIZES]
    assert tuple(round(each.bubble, 3) for each in found) == idle
    assert tuple(max(each.live) for each in found) == live


@pytest.mark.parametrize("size", SIZES)
def test_dualpipev_is_as_full_as_zbv_where_its_pairs_run_in_turn(size):
    assert bubble("dualpipev", *size, overlap=False).bubble == pytest.approx(bubble("zbv", *size).bubble)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_uneven_stages_leave_more_idle(schedule):
    plain = bubble(schedule, 4, 8).bubble
    heavy = (1.0,) * (num_stages(schedule, 4) - 1) + (2.0,)
    assert bubble(schedule, 4, 8, weights=heavy).bubble > plain


@given(schedule=any_schedule, ranks=st.integers(1, 6), micro_batches=st.integers(1, 20))
def test_every_chunk_goes_forward_and_back_once_and_nothing_waits_in_a_ring(schedule, ranks, micro_batches):
    if not accepts_micro_batches(schedule, ranks, micro_batches):
        with pytest.raises(ConfigError, match=r"wants .*found .*work"):
            require_schedule(schedule, ranks, micro_batches, share=micro_batches)
        return
    kinds = {}
    for rank, steps in enumerate(orders(schedule, ranks, micro_batches)):
        for action in (each for step in steps for each in step):
            assert owner_of(schedule, ranks, action.stage) == rank
            kinds.setdefault(action[1:], []).append(action.kind)
    assert set(map(tuple, kinds.values())) <= {("F", "B"), ("F", "I", "W")}
    assert len(kinds) == num_stages(schedule, ranks) * micro_batches
    timeline = bubble(schedule, ranks, micro_batches)
    assert 0 <= timeline.bubble < 1
    assert sum(timeline.busy) == pytest.approx(3 * len(kinds))


@given(schedule=any_schedule, ranks=st.integers(1, 6))
def test_stages_have_one_owner_each(schedule, ranks):
    held = [stage for rank in range(ranks) for stage in stages_of(schedule, ranks, rank)]
    assert sorted(held) == list(range(num_stages(schedule, ranks)))
    for rank in range(ranks):
        assert all(owner_of(schedule, ranks, stage) == rank for stage in stages_of(schedule, ranks, rank))


def test_a_schedule_that_wants_more_micro_batches_names_sizes_that_work():
    with pytest.raises(ConfigError) as raised:
        require_schedule("dualpipev", 2, 2, share=8)
    assert "as many micro-batches as stages, 4, or more; found 2; micro_batch 1 or 2 works" in str(raised.value)


def test_without_knowing_the_blocks_only_one_stage_a_rank_is_promised():
    assert runnable_schedules(4, 8) == ["gpipe", "1f1b"]
    assert runnable_schedules(4, 8, blocks=7) == ["gpipe", "1f1b"]
    assert runnable_schedules(4, 8, blocks=8) == SCHEDULES
