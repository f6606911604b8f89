"""Ledgers of ranks and keeper, merged: every instant of every rank has one cause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.node_ledger import ProcessSpan, excess_seconds, sum_node_seconds
from gangline.spec.measurements import LEDGER_CAUSES

seconds = st.floats(min_value=0, max_value=1e5)
causes = st.dictionaries(st.sampled_from(("compute", "data", "wait", "checkpoint", "build")), seconds, max_size=5)


@st.composite
def lives(draw):
    """Spans of 1 to 3 ranks that do not overlap within a rank, and the end of the keeper."""
    ranks = draw(st.integers(1, 3))
    spans, latest = [], 0.0
    for rank in range(ranks):
        at = 0.0
        for generation in range(draw(st.integers(0, 4))):
            started = at + draw(seconds)
            ended = started + draw(seconds)
            booked_at = draw(st.none() | st.floats(min_value=started, max_value=ended + 1))
            span = ProcessSpan(
                slot=rank,
                generation=generation,
                started=started,
                ended=ended,
                booked=draw(causes) if booked_at is not None else {},
                booked_at=booked_at,
                stalled=draw(seconds),
                clean=draw(st.booleans()),
            )
            spans.append(span)
            at = ended
        latest = max(latest, at)
    return ranks, draw(st.permutations(spans)), latest + draw(seconds)


@given(life=lives())
def test_rows_sum_to_slots_times_wall(life):
    ranks, spans, end = life
    ledger = sum_node_seconds(spans, slots=ranks, start=0.0, end=end)
    assert sum(ledger.values()) == pytest.approx(ranks * end, rel=1e-3, abs=1e-6)
    assert ledger.keys() <= set(LEDGER_CAUSES)
    assert all(seconds >= 0 for seconds in ledger.values())


def test_what_a_rank_booked_is_believed_and_the_rest_filled_up():
    first = ProcessSpan(slot=0, generation=0, started=2, ended=10, booked={"compute": 5}, booked_at=8, clean=False)
    second = ProcessSpan(slot=0, generation=1, started=11, ended=20, booked={"compute": 6, "redone": 1}, booked_at=19)
    ledger = sum_node_seconds([second, first], slots=1, start=0, end=22)
    assert ledger == {"start": 2 + 1, "compute": 11, "restart": 2 + 1 + 1, "redone": 1, "stop": 1 + 2}


def test_silence_of_a_hang_is_stalled_not_compute():
    span = ProcessSpan(
        slot=0, generation=0, started=0, ended=100, booked={"compute": 30}, booked_at=35, stalled=60, clean=False
    )
    assert sum_node_seconds([span], slots=1, start=0, end=100) == {
        "compute": 30,
        "start": 5,
        "stalled": 60,
        "restart": 5,
    }


def test_program_without_books_is_other():
    span = ProcessSpan(slot=0, generation=0, started=1, ended=9)
    assert sum_node_seconds([span], slots=1, start=0, end=10) == {"start": 1, "other": 8, "stop": 1}


def test_time_until_all_nodes_were_there_is_gather():
    span = ProcessSpan(slot=0, generation=0, started=10, ended=20)
    ledger = sum_node_seconds([span], slots=1, start=0, end=20, gathered=9)
    assert ledger == {"gather": 9, "start": 1, "other": 10}
    replaced = ProcessSpan(slot=0, generation=2, started=10, ended=20)
    assert sum_node_seconds([replaced], slots=1, start=0, end=20, gathered=9) == ledger


def test_slot_of_a_smaller_generation_is_idle_and_ranks_beyond_the_slots_are_held_while_they_last():
    spans = [
        ProcessSpan(slot=0, generation=0, started=1, ended=10),
        ProcessSpan(slot=1, generation=0, started=1, ended=10),
        ProcessSpan(slot=0, generation=1, started=11, ended=20),
        *(ProcessSpan(slot=slot, generation=2, started=21, ended=30) for slot in range(3)),
        ProcessSpan(slot=0, generation=3, started=31, ended=40),
    ]
    ledger = sum_node_seconds(spans, slots=2, start=0, end=41, last_generation=3)
    assert ledger == {"start": 2, "other": 9 * 7, "restart": 3, "idle": 11 + 11, "stop": 1}
    assert sum(ledger.values()) == 2 * 41 + excess_seconds(spans, slots=2)
