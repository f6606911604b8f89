"""One sentence at a time, and the moment at which hope ends."""

import time

import pytest

from gangline.launch.kubernetes.waiting import WaitingReason
from gangline.launch.kubernetes.waiting.explain import WaitReporter


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def why(sentence: str, *, kind: str = "quota", after: float | None = None) -> WaitingReason:
    return WaitingReason(kind=kind, sentence=sentence, final_after_seconds=after)


def test_another_sentence_is_reported_ten_seconds_later_at_the_earliest(clock):
    reported = []
    seen = WaitReporter()
    for second in range(30):
        clock[0] = 1000.0 + second
        seen.take(why(f"sentence {second}"))
        news = seen.news()
        reported += [news.sentence] if news else []
    assert reported == ["sentence 0", "sentence 10", "sentence 20"]


def test_same_sentence_is_reported_once(clock):
    seen = WaitReporter()
    seen.take(why("q"))
    assert seen.news().sentence == "q"
    clock[0] += 60
    seen.take(why("q"))
    assert seen.news() is None


def test_hope_ends_when_the_same_trouble_lasted(clock):
    seen = WaitReporter()
    seen.take(why("no image", kind="image", after=60.0))
    clock[0] += 59
    seen.take(why("no image, still", kind="image", after=60.0))
    assert not seen.is_hopeless
    clock[0] += 1
    assert seen.is_hopeless


def test_trouble_that_passed_or_is_another_begins_again(clock):
    seen = WaitReporter()
    seen.take(why("no image", kind="image", after=60.0))
    clock[0] += 50
    seen.take(why("quota"))
    clock[0] += 50
    assert not seen.is_hopeless
    seen.take(why("no image", kind="image", after=60.0))
    clock[0] += 50
    seen.take(why("no secret", kind="secret", after=120.0))
    clock[0] += 60
    assert not seen.is_hopeless


def test_last_word_is_reported_at_once(clock):
    seen = WaitReporter()
    seen.take(why("quota"))
    seen.news()
    seen.take(why("refused", kind="refused", after=0.0))
    assert seen.is_hopeless
    assert seen.news().sentence == "refused"
