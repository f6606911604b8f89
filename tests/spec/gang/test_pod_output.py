"""What a keeper says on stdout and at its end comes back; whatever else stands there stays a log line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.gang.pod_output import (
    MAX_LINE_BYTES,
    TERMINATION_BYTES,
    PodLine,
    event_line,
    from_message,
    keeper_line,
    log_line,
    parse,
    status_line,
    to_message,
)
from gangline.spec.gang.status import GangEnd, KeeperStatus

words = st.text(st.characters(exclude_characters="\n\r"), max_size=50)


@given(st.integers(0, 9999), words)
def test_a_log_line_comes_back_with_its_rank(rank, text):
    assert parse(log_line(rank, text)) == PodLine(rank=rank, text=text)


def test_a_keepers_word_has_no_rank():
    assert parse(keeper_line(3, "starts")) == PodLine(text="starts")


def test_events_and_statuses_come_back():
    event = {"event": "step", "rank": 1, "step": 7, "loss": 2.5}
    status = KeeperStatus(node_rank=1, pid=1, start_time=5, state="running", joined=(2, 3))
    assert parse(event_line(event)) == PodLine(event=event)
    assert parse(status_line(status)) == PodLine(status=status)


def test_an_event_of_any_size_is_one_line_with_its_short_values():
    event = {"event": "watchdog", "rank": 1, "stacks": "x" * 100_000}
    line = event_line(event)
    assert len(line.encode()) <= MAX_LINE_BYTES
    assert "\n" not in line
    assert parse(line).event == {"event": "watchdog", "rank": 1}


@given(words)
def test_foreign_lines_are_log_lines(text):
    said = parse(text)
    assert said.text is not None or said.event is not None


@pytest.mark.parametrize("line", ["\x1e[1]", "\x1e{", '\x1e{"status": {"pid": 1}}', "\x1e"])
def test_a_damaged_record_is_a_log_line(line):
    assert parse(line) == PodLine(text=line[1:])


@pytest.mark.parametrize("size", [10, 5_000, 100_000])
def test_an_end_fits_the_termination_message(size):
    end = GangEnd(exit_code=30, retry="never", reason="é" * size, evidence={"log": "y" * size}, ledger={"compute": 1.0})
    message = to_message(end)
    assert len(message.encode()) <= TERMINATION_BYTES
    found = from_message(message)
    assert found is not None
    assert (found.exit_code, found.retry) == (30, "never")


@pytest.mark.parametrize("text", ["", "Killed", "{}", '{"exit_code": "x"}', "[]"])
def test_another_termination_message_is_not_an_end(text):
    assert from_message(text) is None
