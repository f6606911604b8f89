"""The switch and the ledger: every instant in one cause, rows that sum to the wall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.train.account.clock import PhaseClock, RankLedger

PHASES = ["data", "forward", "backward", "wait", "bubble", "optimizer", "checkpoint", "other", "resume", "evaluate"]
moves = st.tuples(st.sampled_from(PHASES), st.floats(0, 10), st.floats(0, 20), st.booleans())


@given(st.lists(moves, max_size=30))
def test_rows_of_the_ledger_sum_to_the_time_that_passed(course):
    now = [100.0]
    clock, ledger = PhaseClock("start", now=lambda: now[0]), RankLedger()
    for phase, seconds, waited, ends_lap in course:
        before = clock.phase
        now[0] += seconds
        clock.switch(phase)
        clock.move(before, "wait", waited)
        if ends_lap:
            ledger.book(clock.lap(), redone=seconds > 5)
    ledger.book(clock.lap())
    assert sum(ledger.seconds.values()) == pytest.approx(now[0] - 100.0)
    assert all(seconds >= 0 for seconds in ledger.seconds.values())


def test_phases_of_arithmetic_are_compute_and_redone_steps_are_redone():
    ledger = RankLedger()
    ledger.book({"forward": 1.0, "backward": 2.0, "optimizer": 0.5, "wait": 0.25})
    ledger.book({"forward": 4.0, "wait": 1.0}, redone=True)
    assert ledger.seconds == {"compute": 3.5, "wait": 0.25, "redone": 5.0}


def test_block_goes_back_to_the_phase_before():
    now = [0.0]
    clock = PhaseClock("data", now=lambda: now[0])
    with clock.during("checkpoint"):
        now[0] += 2.0
    now[0] += 1.0
    assert clock.lap() == {"data": 1.0, "checkpoint": 2.0}
