"""Lines of a rank: in order, soon on the disk, always JSON."""

import json

import pytest

from gangline.train.account.event_log import FLUSH_LINES, EventLog, last_step


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_wait_for_ten_and_others_take_them_along(tmp_path):
    path = tmp_path / "ranks" / "0.jsonl"
    log = EventLog(path, rank=0, generation=2)
    for step in range(1, FLUSH_LINES):
        log.emit("step", step=step, loss=1.0)
    assert lines(path) == []
    log.emit("step", step=FLUSH_LINES, loss=1.0)
    assert len(lines(path)) == FLUSH_LINES
    log.emit("step", step=FLUSH_LINES + 1, loss=1.0)
    log.emit("saved", step=FLUSH_LINES + 1)
    found = lines(path)
    assert [each["event"] for each in found[-2:]] == ["step", "saved"]
    assert {each["generation"] for each in found} == {2}
    assert [each["mono"] for each in found] == sorted(each["mono"] for each in found)
    log.close()


def test_numbers_that_are_not_finite_become_null(tmp_path):
    path = tmp_path / "0.jsonl"
    log = EventLog(path, rank=0, generation=0)
    log.emit("step", step=1, loss=float("nan"), phases={"wait": float("inf"), "data": 0.5})
    log.close()
    assert lines(path)[0]["loss"] is None
    assert lines(path)[0]["phases"] == {"wait": None, "data": 0.5}


@pytest.mark.parametrize(
    "torn", ['{"event": "step", "rank": 0, "st', '{"event": "step", "rank": 0, "generation": 0, "step": 5']
)
def test_last_step_is_found_next_to_half_a_line(tmp_path, torn):
    path = tmp_path / "0.jsonl"
    log = EventLog(path, rank=0, generation=0)
    log.emit("step", step=4, loss=1.0)
    log.close()
    with path.open("a") as file:
        file.write(torn)
    assert last_step(path) == 4
    assert last_step(tmp_path / "absent.jsonl") == 0


def test_listeners_hear_without_a_file():
    heard = []
    log = EventLog(None, rank=0, generation=0)
    log.listeners.append(heard.append)
    log.emit("step", step=1)
    assert heard[0]["step"] == 1
