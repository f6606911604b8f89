"""Samples are counted from what each step says it took: a hole, an overlap and a doubled step are seen."""

import pytest
from tests.drill.test_history import step

from gangline.drill.history import DrillHistory, SampleCounts, count_samples, with_redone_steps


def took(number, start, stop, mono=None, generation=0):
    return step(number, number if mono is None else mono, generation) | {"span": [start, stop]}


def resumed(at, mono, generation=1):
    return {"event": "resumed", "rank": 0, "generation": generation, "step": at, "mono": mono}


def counted(*events):
    return count_samples(DrillHistory(ranks=events), batch=8)


def test_an_unbroken_training_takes_each_sample_once():
    assert counted(took(1, 0, 8), took(2, 8, 16), took(3, 16, 24)) == SampleCounts()


def test_what_a_later_generation_does_again_counts_once():
    found = counted(
        took(1, 0, 8), took(2, 8, 16), took(3, 16, 24), resumed(1, 4), took(2, 8, 16, 5, 1), took(3, 16, 24, 6, 1)
    )
    assert found == SampleCounts(again=16)


def test_a_generation_without_a_checkpoint_begins_again():
    assert counted(took(1, 0, 8), took(2, 8, 16), took(1, 0, 8, 5, 1), took(2, 8, 16, 6, 1)) == SampleCounts(again=16)


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ((10, 18), SampleCounts(lost=2)),
        ((6, 14), SampleCounts(twice=2)),
        ((0, 8), SampleCounts(twice=8)),
        ((16, 24), SampleCounts(lost=8)),
    ],
)
def test_a_hole_and_an_overlap_are_counted(second, found):
    assert counted(took(1, 0, 8), took(2, *second)) == found


def test_a_resumed_cursor_that_is_wrong_is_seen_though_the_step_numbers_fit():
    assert counted(took(1, 0, 8), took(2, 8, 16), resumed(1, 3), took(2, 12, 20, 4, 1)) == SampleCounts(lost=4, again=8)


def test_samples_of_a_step_that_was_not_finite_are_left_out_and_not_lost():
    bad = {
        "event": "non_finite",
        "rank": 0,
        "generation": 0,
        "step": 2,
        "mono": 2.5,
        "answer": "rollback",
        "samples": [8, 16],
    }
    assert counted(took(1, 0, 8), bad, resumed(1, 3, 0), took(2, 16, 24, 4)) == SampleCounts(left_out=8)


def test_steps_that_do_not_report_their_samples_represent_whole_batches():
    assert counted(step(1, 1), step(3, 2)) == SampleCounts(lost=8, counted=False)


def test_steps_that_rank_0_was_killed_before_it_reported_are_those_of_another_rank():
    mine, other = took(1, 0, 8), {**took(2, 8, 16), "rank": 1}
    later = {**resumed(2, 3), "cursor": 16}, took(3, 16, 24, 4, 1)
    assert counted(mine, other, *later) == SampleCounts()
    assert counted(mine, *later) == SampleCounts(unknown=8)


def test_steps_that_a_killed_rank_had_no_time_to_write_are_done_again_all_the_same():
    seen = counted(took(1, 0, 8), took(2, 8, 16), resumed(1, 3), took(2, 8, 16, 4, 1))
    assert with_redone_steps(seen, steps=3, batch=8) == SampleCounts(again=24)
    assert with_redone_steps(seen, steps=0, batch=8) == seen == SampleCounts(again=8)
