"""A mirror and its writer: nothing it meets stops or slows who feeds it, and nothing is lost or doubled."""

import gc
import time
from pathlib import Path

import pytest
from tests.trackers.events import steps
from tests.trackers.fake_tracker import FakeTracker

from gangline.trackers import mirror as module
from gangline.trackers.mirror import MOST_POINTS, Mirror, MirrorSource, entry_of
from gangline.trackers.operations import points_of
from gangline.trackers.protocol import Point, TrackedRun
from gangline.trackers.writer_process import WriterFailed

RUN = TrackedRun(id="cheap-9f31c2a0-k7q2mx", project="cheap", experiment="cheap", name="cheap-9f31c2a0-k7q2mx",
                 status="running", started_ms=1)  # fmt: skip
ENDED = TrackedRun(id=RUN.id, project="cheap", experiment="cheap", name=RUN.name, status="finished", started_ms=1,
                   ended_ms=9)  # fmt: skip
FINAL = [Point("final/loss", 5, 9, 0.5)]


@pytest.fixture
def tracker(tmp_path):
    return FakeTracker.at(tmp_path / "tracker")


class Driven:
    """A mirror with what it asks of its driver."""

    def __init__(self, tracker, *, stored=(), seconds=10.0, needs_all=False):
        self.stored, self.holds, self.failures = list(stored), True, 0
        source = MirrorSource(
            start=lambda: tracker.start(seconds=seconds), run=lambda: RUN, history=lambda: iter(self.stored),
            may_write=lambda: self.holds, count_failure=self.count,
        )  # fmt: skip
        self.mirror = Mirror("ours", source, every_seconds=0.1, needs_all=needs_all)

    def count(self):
        self.failures += 1

    def feed(self, events):
        for event in events:
            self.mirror.feed(entry_of(event))

    def close(self, ending):
        self.mirror.end(ending)
        self.mirror.close()

    def sentences(self):
        return [self.mirror.sentences.get() for _ in range(self.mirror.sentences.qsize())]


def expected(events):
    return sorted((p.metric, p.step, p.time_ms, p.value) for event in events for p in points_of(event))


def test_all_points_come_in_order_and_once_then_the_end(tracker):
    driven = Driven(tracker)
    driven.feed(steps(5))
    tracker.wait_for(lambda: "write" in tracker.names())
    driven.feed(steps(9)[5:])
    driven.close((ENDED, FINAL))
    assert tracker.sent() == [(p.metric, p.step, p.time_ms, p.value) for e in steps(9) for p in points_of(e)] + [
        ("final/loss", 5, 9, 0.5)
    ]
    assert tracker.names()[:2] == ["open", "begin"]
    assert tracker.names()[-2:] == ["finish", "close"]
    assert driven.sentences() == []


@pytest.mark.row("TB2")
def test_feeding_never_waits_and_what_the_queue_loses_comes_from_the_store(tracker, request):
    tracker.goes("slow 0.3")
    events = steps(6000)
    driven = Driven(tracker, stored=events)
    gc.disable()  # what other tests left in this process is not what feeding costs
    request.addfinalizer(gc.enable)
    began = time.thread_time()
    longest = 0.0
    for event in events:
        at = time.thread_time()
        driven.mirror.feed(entry_of(event))
        longest = max(longest, time.thread_time() - at)
        assert driven.mirror._num_points <= MOST_POINTS
    assert time.thread_time() - began < 5.0
    assert longest < 0.1
    tracker.goes("takes")
    wanted = expected(events)
    tracker.wait_for(lambda: len(tracker.history()) == len(wanted))
    driven.close(None)
    assert tracker.history() == wanted


@pytest.mark.row("TB2")
def test_what_the_queue_loses_while_a_gap_is_filled_comes_before_what_follows(tracker):
    """The store is slow: while it is read, the queue loses its head again."""
    events = steps(9000)
    driven = Driven(tracker)

    class SlowStore:
        def __iter__(self):
            if driven.stored is self:
                driven.stored = events
                driven.feed(events[2500:])
                return iter(events[:2500])
            return iter(events)

    driven.stored = SlowStore()
    driven.feed(events[2499:2500])
    wanted = expected(events)
    tracker.wait_for(lambda: len(tracker.sent()) >= len(wanted))
    driven.close(None)
    assert tracker.sent() == [(p.metric, p.step, p.time_ms, p.value) for e in events for p in points_of(e)]


@pytest.mark.row("TB2")
def test_three_failures_are_one_sentence_and_a_tracker_that_comes_back_gets_all(tracker):
    tracker.goes("fails")
    events = steps(50)
    driven = Driven(tracker, stored=events[:30])
    driven.feed(events[:30])
    tracker.wait_for(lambda: driven.failures >= 4)
    (sentence,) = driven.sentences()
    assert sentence == ("ours does not have all of this run: 503 Service Unavailable; gangline track push completes it")
    driven.feed(events[30:])
    tracker.goes("takes")
    tracker.wait_for(lambda: len(tracker.history()) == len(expected(events)))
    driven.close((ENDED, []))
    assert tracker.history() == expected(events)
    assert tracker.names()[-2:] == ["finish", "close"]


def test_pauses_double_up_to_ten_minutes(tracker):
    driven = Driven(tracker)
    driven.close(None)
    pauses = []
    for _ in range(16):
        driven.mirror._fail("503", is_refused=False)
        pauses.append(driven.mirror._due - time.monotonic())
    assert pauses[0] == pytest.approx(0.1, abs=0.05)
    assert pauses[3] == pytest.approx(0.8, abs=0.05)
    assert pauses[-1] == pytest.approx(600, abs=0.5)


@pytest.mark.row("TB2")
@pytest.mark.parametrize(("way", "cause"), [("refuses", "wanted a token, found another"), ("dies", "ended with 3")])
def test_a_refusal_is_an_event_at_once_and_a_death_is_a_failure(tracker, way, cause):
    tracker.goes(way)
    driven = Driven(tracker)
    driven.feed(steps(2))
    tracker.wait_for(lambda: driven.failures >= (1 if way == "refuses" else 3))
    driven.close((ENDED, FINAL))
    assert [cause in sentence for sentence in driven.sentences()] == [True]
    assert driven.failures == 1 or way == "dies"


@pytest.mark.row("TB2")
def test_a_silent_tracker_holds_no_end_up(tracker, monkeypatch):
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.5)
    driven = Driven(tracker, seconds=600.0)
    tracker.wait_for(lambda: "begin" in tracker.names())
    tracker.goes("hangs")
    driven.feed(steps(2))
    time.sleep(0.3)
    began = time.monotonic()
    driven.close((ENDED, FINAL))
    assert time.monotonic() - began < 8.0
    assert driven.sentences() == [
        "ours does not have all of this run: it did not take all in time; gangline track push completes it"
    ]
    tracker.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in tracker.pids()))


def test_a_call_that_is_not_answered_in_time_ends_its_writer(tracker):
    process = tracker.start(seconds=0.5)
    process.open()
    tracker.goes("hangs")
    with pytest.raises(WriterFailed, match=r"no answer to begin within 0\.5 s"):
        process.begin(RUN)
    assert not any(Path(f"/proc/{pid}").exists() for pid in tracker.pids())


def test_who_lost_the_lease_writes_nothing_more(tracker):
    driven = Driven(tracker)
    driven.feed(steps(2))
    tracker.wait_for(lambda: "write" in tracker.names())
    driven.holds = False
    before = tracker.names()
    driven.feed(steps(9)[2:])
    driven.close((ENDED, FINAL))
    assert tracker.names()[len(before) :] in ([], ["close"])


def test_a_writer_that_begins_a_file_gets_all_from_the_first_event_on(tracker):
    events = steps(20)
    driven = Driven(tracker, stored=events, needs_all=True)
    driven.feed(events[:10])
    tracker.wait_for(lambda: len(tracker.history()) == len(expected(events[:10])))
    tracker.goes("dies")
    driven.feed(events[10:])
    tracker.wait_for(lambda: driven.failures)
    tracker.goes("takes")
    tracker.wait_for(lambda: tracker.names().count("begin") == 2)
    tracker.wait_for(lambda: not driven.mirror._failures)  # a tracker that failed last is not waited for
    driven.close((ENDED, []))
    second = tracker.calls()[len(tracker.names()) - tracker.names()[::-1].index("begin") :]
    written = [tuple(point) for name, content in second if name == "write" for point in content]
    assert written == [(p.metric, p.step, p.time_ms, p.value) for e in events for p in points_of(e)]


def test_a_token_is_in_no_argument_no_variable_and_no_sentence(tracker):
    process = tracker.start()
    process.open()
    try:
        for name in ("cmdline", "environ"):
            assert b"hush" not in Path(f"/proc/{process._process.pid}/{name}").read_bytes()
        assert "hush" not in repr(process._settings)
        tracker.goes("refuses")
        with pytest.raises(WriterFailed) as caught:
            process.begin(RUN)
        assert "hush" not in str(caught.value)
    finally:
        process.end()


def test_an_interpreter_that_is_not_there_is_named(tracker):
    (tracker.folder / "python").unlink()
    with pytest.raises(WriterFailed, match="wanted a Python at") as caught:
        tracker.start()
    assert caught.value.is_refused
