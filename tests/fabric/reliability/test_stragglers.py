"""Who holds the gang up, judged from made-up times: found when it is so, silent when it is noise."""

import random

import pytest

from gangline.fabric.reliability.step_times import WORK, PeerGroup, WindowTimes
from gangline.fabric.reliability.stragglers import LOOKBACKS, StragglerDetector, why_not_judged, window_steps
from gangline.spec.measurements import PHASES

SHARES = {"data": 0.05, "forward": 0.3, "backward": 0.55, "optimizer": 0.08, "other": 0.02}


def times(own, step, *, samples=8.0, longer=None):
    work = {phase: share * own for phase, share in SHARES.items()}
    if longer is not None:
        work[longer[0]] += longer[1]
    return WindowTimes(work=work, wait=max(0.0, step - own), samples=samples)


def course(ranks, windows, *, noise=0.03, slow=None, factor=1.1, seed=0, stage_of=None, samples=None):
    """(window, rank) of every name, and of every name that was taken back."""
    draw = random.Random(seed)
    judge = StragglerDetector(lambda rank: PeerGroup(stage_of(rank) if stage_of else 0, rank))
    names, over = [], []
    for number in range(windows):
        dealt = samples or [8.0] * ranks
        own = [0.1 * dealt[rank] / 8 * (1 + draw.gauss(0, noise)) for rank in range(ranks)]
        if slow is not None and number in slow[1]:
            own[slow[0]] *= factor
        step = max(own)
        new, gone = judge.add_window([times(each, step, samples=dealt[rank]) for rank, each in enumerate(own)])
        names += [(number, each.rank) for each in new]
        over += [(number, each.rank) for each in gone]
    return names, over


def test_work_and_waiting_are_all_that_a_step_consists_of():
    assert {*WORK, "wait", "bubble", "checkpoint"} == {*PHASES}


@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_four_hundred_windows_of_noise_name_no_one(ranks):
    assert [course(ranks, 400, seed=seed) for seed in range(3)] == [([], [])] * 3


def test_noise_of_one_rank_alone_names_no_one():
    draw = random.Random(5)
    judge = StragglerDetector(lambda rank: PeerGroup(0, rank))
    for _ in range(400):
        own = [0.1 * (1 + draw.gauss(0, 0.2 if rank == 1 else 0.01)) for rank in range(4)]
        assert judge.add_window([times(each, max(own)) for each in own]) == ([], [])


@pytest.mark.parametrize("seed", range(10))
def test_rank_ten_percent_slower_is_named_soon_and_once(seed):
    names, over = course(4, 60, slow=(2, range(60)), seed=seed)
    assert [rank for _, rank in names] == [2]
    assert names[0][0] < 30
    assert over == []


def test_rank_that_is_quick_again_is_taken_back_and_named_again_when_it_slows_again():
    names, over = course(4, 90, slow=(1, [*range(30), *range(60, 90)]), factor=1.3, noise=0.01)
    assert [rank for _, rank in names] == [1, 1]
    assert [rank for _, rank in over] == [1]
    assert names[0][0] < over[0][0] < names[1][0]


def test_first_windows_name_no_one():
    names, _ = course(4, 20, slow=(0, range(20)), factor=2.0, noise=0.0)
    assert names == [(LOOKBACKS[0] - 1, 0)]


def test_stage_with_more_layers_is_not_a_straggler_but_a_slow_rank_inside_it_is():
    stage_of = {0: 0, 1: 0, 2: 1, 3: 1}.get
    judge = StragglerDetector(lambda rank: PeerGroup(stage_of(rank), rank))
    found = []
    for _ in range(10):
        own = [0.05, 0.05, 0.1, 0.1]
        found += judge.add_window([times(each, 0.1) for each in own])[0]
    assert found == []
    for _ in range(10):
        own = [0.05, 0.065, 0.1, 0.1]
        found += judge.add_window([times(each, 0.1) for each in own])[0]
    assert [each.rank for each in found] == [1]


def test_rank_with_more_samples_is_not_slow_and_one_with_less_may_be():
    assert course(4, 30, samples=[10.0, 6.0, 8.0, 8.0], noise=0.01) == ([], [])
    names, _ = course(4, 30, samples=[6.0, 8.0, 9.0, 9.0], slow=(0, range(30)), factor=1.3, noise=0.01)
    assert [rank for _, rank in names] == [0]


def test_peers_that_share_samples_are_one_cell_and_who_waits_least_in_it_is_named():
    judge = StragglerDetector(lambda rank: PeerGroup(0, rank // 2))
    found = []
    for _ in range(8):
        rows = [times(0.1, 0.13), times(0.1, 0.13), times(0.13, 0.135), times(0.13, 0.13)]
        found += judge.add_window(rows)[0]
    assert [each.rank for each in found] == [3]


def test_phase_that_is_longer_is_reported_with_what_it_costs():
    judge = StragglerDetector(lambda rank: PeerGroup(0, rank))
    found = []
    for _ in range(6):
        rows = [times(0.1, 0.14) for _ in range(3)] + [times(0.1, 0.1, longer=("data", 0.04))]
        found += judge.add_window(rows)[0]
    assert (found[0].rank, found[0].phase) == (3, "data")
    assert found[0].seconds == pytest.approx(0.04)
    assert found[0].ratio == pytest.approx(1.4)
    assert found[0].wait_share == 0.0


def test_who_is_slow_by_less_than_a_millisecond_is_not_worth_a_word():
    judge = StragglerDetector(lambda rank: PeerGroup(0, rank))
    for _ in range(20):
        assert judge.add_window([times(0.001, 0.0015), times(0.0015, 0.0015)]) == ([], [])


def large_gang(windows, own_of, *, ranks=256, step_seconds=5.0, seed=0):
    """(window, rank) of every name in a gang of long steps, whose windows last 25 seconds."""
    draw, names = random.Random(seed), []
    judge = StragglerDetector(lambda rank: PeerGroup(0, rank))
    for number in range(windows):
        own = [step_seconds * 0.8 * own_of(draw, number, rank) for rank in range(ranks)]
        new, _ = judge.add_window([times(each, max(own)) for each in own], steps=window_steps(step_seconds))
        names += [(number, each.rank) for each in new]
    return names


def test_one_window_is_enough_where_it_is_long_and_the_noise_is_known():
    names = large_gang(20, lambda draw, number, rank: draw.gauss(1.1 if rank == 7 and number >= 10 else 1, 0.012))
    assert [rank for _, rank in names] == [7]
    assert names[0][0] in (10, 11)


def test_two_slow_ranks_at_once_are_both_named():
    names = large_gang(12, lambda draw, _, rank: draw.gauss(1.1 if rank in (7, 200) else 1, 0.012))
    assert {rank for _, rank in names} == {7, 200}


def test_what_one_window_leaves_open_is_decided_by_the_next_and_not_only_by_six():
    """A rank 7 % slower among 256 with noise of 1.2 % a window: too close to the noise of one window."""

    def slower(draw, number, rank):
        return draw.gauss(1.07 if rank == 7 and number >= 10 else 1, 0.012)

    found = [large_gang(18, slower, seed=seed) for seed in range(4)]
    assert [rank for names in found for _, rank in names] == [7] * 4
    assert max(window for names in found for window, _ in names) == 11


def test_many_windows_of_a_large_gang_name_no_one():
    assert large_gang(100, lambda draw, *_: draw.gauss(1, 0.015)) == []


def test_lasting_differences_between_peers_are_their_usual_spread():
    spread = [random.Random(each).gauss(1, 0.02) for each in range(64)]
    assert large_gang(40, lambda draw, _, rank: spread[rank] * draw.gauss(1, 0.002), ranks=64) == []
    names = large_gang(40, lambda draw, _, rank: (1.2 if rank == 9 else spread[rank]) * draw.gauss(1, 0.002), ranks=64)
    assert {rank for _, rank in names} == {9}


def test_garbage_collection_of_any_rank_is_not_a_straggler():
    def paused(draw, *_):
        steps = sorted(draw.gauss(1, 0.03) + (0.3 if draw.random() < 0.05 else 0) for _ in range(10))[2:-2]
        return sum(steps) / 6

    assert [large_gang(60, paused, ranks=64, step_seconds=2.0, seed=each) for each in range(4)] == [[]] * 4


def test_windows_are_short_where_steps_are_long():
    assert [window_steps(each) for each in (0.0, 0.01, 2.5, 3.0, 5.0, 60.0)] == [10, 10, 10, 9, 5, 5]


def test_ranks_whose_waits_are_not_measured_are_not_judged():
    assert why_not_judged("cpu") == ""
    assert "waits are not measured" in why_not_judged("cuda")
