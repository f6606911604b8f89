"""What a pod says on stdout: all that matters, whoever reads slowly, however much ranks print."""

import json
import os
import time

import pytest
from tests.keeper.coordination.nodes import poll

from gangline.keeper.logs.log_files import rotate
from gangline.keeper.logs.pod_log import LOG_BYTES_PER_SECOND, PodLog
from gangline.spec.gang.pod_output import MAX_LINE_BYTES, parse
from gangline.spec.gang.status import KeeperStatus
from gangline.units import format_bytes


class Listener:
    """The far end of a pod's stdout."""

    def __init__(self, home):
        (home / "logs").mkdir()
        (home / "out" / "ranks").mkdir(parents=True)
        self.home = home
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._heard = b""

    def speaker(self):
        return PodLog(1, (2, 3), home=self.home, handle=self._writer)

    def log(self, rank, data):
        with (self.home / "logs" / f"{rank}.log").open("ab") as file:
            file.write(data)

    def event(self, of, **event):
        with (self.home / "out" / "ranks" / f"{of}.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    def said(self):
        try:
            while data := os.read(self._reader, 1 << 20):
                self._heard += data
        except BlockingIOError:
            pass
        return [parse(line) for line in self._heard.decode().split("\n") if line]

    def close(self):
        os.close(self._reader)
        os.close(self._writer)


@pytest.fixture
def listener(tmp_path):
    listener = Listener(tmp_path)
    yield listener
    listener.close()


def speak(speaker, listener, condition):
    """Pump until `condition` of what was said."""

    def spoken():
        speaker.poll()
        return condition(listener.said())

    poll(spoken)


def test_lines_are_said_under_their_rank_once_and_whole(listener):
    listener.log(2, b"of an earlier pod\n")
    speaker = listener.speaker()
    listener.log(2, "grüße\nto".encode())
    speak(speaker, listener, lambda said: [(each.rank, each.text) for each in said] == [(2, "grüße")])
    listener.log(2, b"rn\n\n\xff\n")
    speak(speaker, listener, lambda said: [each.text for each in said] == ["grüße", "torn", "", "\ufffd"])


def test_long_lines_are_cut_and_none_is_waited_for_for_ever(listener):
    speaker = listener.speaker()
    listener.log(3, b"x" * (3 * MAX_LINE_BYTES))
    speak(speaker, listener, lambda said: sum(len(each.text) for each in said) == 3 * MAX_LINE_BYTES)
    assert max(len(each.text) for each in listener.said()) == MAX_LINE_BYTES


def test_flood_is_cut_to_its_end_and_said_to_be(listener):
    speaker = listener.speaker()
    listener.log(2, b"".join(b"line %06d\n" % number for number in range(1_000_000)))
    listener.log(3, b"quiet\n")
    speak(speaker, listener, lambda said: any(each.rank == 2 and each.text == "line 999999" for each in said))
    said = listener.said()
    assert any("of rank 2's log are left out here" in each.text for each in said if each.rank is None)
    assert any(each.rank == 3 and each.text == "quiet" for each in said)
    assert sum(len(each.text) for each in said) < 2 * LOG_BYTES_PER_SECOND


def test_log_that_was_moved_aside_is_read_from_its_new_start(listener):
    speaker = listener.speaker()
    listener.log(2, b"before\n" * 100)
    speak(speaker, listener, lambda said: len(said) == 100)
    (listener.home / "logs" / "2.log").write_bytes(b"after\n")
    speak(speaker, listener, lambda said: said[-1].text == "after")


def test_of_the_steps_of_other_ranks_the_last_of_a_while_is_said_and_all_else(listener):
    speaker = listener.speaker()
    for step in range(50):
        listener.event(2, event="step", rank=2, step=step)
    listener.event(2, event="saved", rank=2, step=49)
    speak(speaker, listener, lambda said: any(each.event["event"] == "step" for each in said))
    speaker.drain(1.0)
    events = [each.event for each in listener.said()]
    assert [event["step"] for event in events if event["event"] == "step"] == [49]
    assert [event["event"] for event in events].count("saved") == 1


def test_rank_0_says_every_step(tmp_path):
    listener = Listener(tmp_path)
    speaker = PodLog(0, (0,), home=tmp_path, handle=listener._writer)
    for step in range(500):
        listener.event(0, event="step", rank=0, step=step)
    speak(speaker, listener, lambda said: [each.event["step"] for each in said] == list(range(500)))
    listener.close()


def test_who_reads_slowly_holds_no_one_up_and_misses_no_event(listener):
    speaker = listener.speaker()
    for number in range(20_000):
        listener.event(2, event="saved", rank=2, step=number)
    start = time.monotonic()
    for _ in range(20):
        speaker.poll()
    assert time.monotonic() - start < 30, "nobody reads, and it went on"
    speak(speaker, listener, lambda said: [each.event["step"] for each in said] == list(range(20_000)))


def test_status_and_words_of_the_keeper_are_its_own(listener):
    speaker = listener.speaker()
    status = KeeperStatus(node_rank=1, pid=7, start_time=8, state="running", joined=(2, 3))
    speaker.status(status)
    speaker.event({"event": "restart", "reason": "so"})
    speaker.note("hello")
    speaker.drain(1.0)
    said = listener.said()
    assert said[0].status == status
    assert said[1].event == {"keeper": 1, "event": "restart", "reason": "so"}
    assert (said[2].rank, said[2].text) == (None, "hello")


def test_closed_stdout_is_borne(listener, monkeypatch):
    speaker = listener.speaker()
    listener.log(2, b"nobody hears\n")
    monkeypatch.setattr("gangline.keeper.logs.pod_log.os.write", lambda *_: (_ for _ in ()).throw(BrokenPipeError()))
    speaker.drain(1.0)
    assert listener.said() == []


def test_what_was_not_said_yet_of_a_log_that_is_rotated_is_said_and_what_is_gone_is_counted(listener):
    log, speaker = listener.home / "logs" / "2.log", listener.speaker()
    listener.log(2, b"one\ntwo\nth")
    rotate([log], max_bytes=14)
    listener.log(2, b"ree\nfour\n")
    speak(speaker, listener, lambda said: [each.text for each in said][-1:] == ["four"])
    assert [each.text for each in listener.said()] == [
        "4 B of rank 2's log are left out here: it prints too fast", "two", "three", "four",
    ]  # fmt: skip


def test_a_log_that_is_rotated_with_more_than_may_be_said_is_said_from_a_whole_line_on(listener):
    log, speaker = listener.home / "logs" / "2.log", listener.speaker()
    lines = [f"line {number:06d}" for number in range(200_000)]
    listener.log(2, "\n".join(lines).encode() + b"\n")
    rotate([log], max_bytes=1 << 20)
    speak(speaker, listener, lambda said: bool(said) and said[-1].text == lines[-1])
    (note, *found) = [each.text for each in listener.said()]
    assert (
        note == f"{format_bytes(12 * (len(lines) - len(found)))} of rank 2's log are left out here: it prints too fast"
    )
    assert found == lines[-len(found) :]
