"""The watchdog against heartbeats on an invented clock."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.ipc.environment import WatchdogLimits
from gangline.keeper.ipc.heartbeat import Beat
from gangline.keeper.ranks.watchdog import Watchdog

LIMITS = WatchdogLimits(start=300, first=600, extra=10)


def beat(step, mono, *, phase="forward", until=0.0):
    return Beat(pid=1, step=step, steps_taken=step, mono=mono, expect_until=until, phase=phase)


def watch(ranks=2, *, must_beat=True):
    return Watchdog(LIMITS, started=dict.fromkeys(range(ranks), 0.0), must_beat=must_beat)


def after_steps(watchdog, count, seconds, ranks=2):
    """Let all ranks do `count` steps of `seconds`; the time it is then."""
    for step in range(count + 1):
        assert watchdog.check({rank: beat(step, step * seconds) for rank in range(ranks)}, step * seconds) is None
    return count * seconds


def test_rank_that_never_beats_hangs_after_the_start_limit():
    watchdog = watch()
    beats = {0: beat(-1, 1.0), 1: None}
    assert watchdog.check(beats, 299) is None
    assert watchdog.check(beats, 301).rank == 1


def test_program_that_never_beats_is_left_alone():
    assert watch(must_beat=False).check({0: None, 1: None}, 1e6) is None


def test_first_steps_have_their_own_limit():
    watchdog = watch(1)
    assert watchdog.check({0: beat(0, 100)}, 699) is None
    assert watchdog.check({0: beat(0, 100)}, 701).rank == 0


@given(seconds=st.floats(0.001, 1000), count=st.integers(3, 60))
def test_hang_is_found_at_twice_the_median_plus_ten(seconds, count):
    watchdog = watch()
    now = after_steps(watchdog, count, seconds)
    last = {rank: beat(count, now) for rank in (0, 1)}
    assert watchdog.check(last, now + 2 * seconds + 9.99) is None
    assert watchdog.check(last, now + 2 * seconds * 1.001 + 10.01) is not None


def test_one_slow_step_among_twenty_does_not_move_the_limit():
    watchdog = watch(1)
    now = after_steps(watchdog, 19, 1.0, ranks=1)
    assert watchdog.check({0: beat(20, now + 11.5)}, now + 11.5) is None
    assert watchdog.check({0: beat(20, now + 11.5)}, now + 11.5 + 12.1) is not None


def test_who_is_behind_is_blamed_not_who_waits():
    watchdog = watch(3)
    now = after_steps(watchdog, 5, 1.0, ranks=3)
    beats = {0: beat(5, now, phase="wait"), 1: beat(5, now + 0.1, phase="backward"), 2: beat(5, now, phase="wait")}
    hang = watchdog.check(beats, now + 100)
    assert hang.rank == 1
    assert "after step 5, in phase 'backward'" in hang.reason
    beats[2] = replace(beats[2], step=4)
    assert watchdog.check(beats, now + 100).rank == 2


@pytest.mark.parametrize(("now", "hangs"), [(499, False), (501, True)])
def test_announced_silence_is_borne(now, hangs):
    watchdog = watch(1)
    after_steps(watchdog, 5, 1.0, ranks=1)
    assert (watchdog.check({0: beat(5, 5.0, until=500)}, now) is not None) == hangs


def test_every_node_that_is_asked_says_who_is_furthest_behind_though_nothing_hangs_there():
    watchdog = watch()
    assert watchdog.check({0: beat(6, 10.0, phase="wait"), 1: beat(6, 10.0)}, 12.0) is None
    found = watchdog.behind(12.0)
    assert (found.rank, found.step, found.waits, found.silent_seconds) == (1, 6, False, 2.0)
    assert watchdog.behind(12.0, [0]).progress > found.progress


def test_program_that_does_not_beat_is_not_said_to_be_behind_one_that_does():
    watchdog = watch(must_beat=False)
    watchdog.check({0: None, 1: beat(3, 10.0)}, 12.0)
    assert watchdog.behind(12.0).rank == 1
