"""Waiting for an API server that is away."""

import pytest

from gangline.launch.kubernetes import patience
from gangline.launch.kubernetes.api.protocol import Away
from gangline.launch.kubernetes.patience import patiently, telling


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.01)


def failing(times):
    left = [times]

    def call():
        left[0] -= 1
        if left[0] >= 0:
            raise Away("the line is cut")
        return "answer"

    return call


@pytest.mark.row("K7")
def test_outage_is_told_once_and_outlasted():
    notes = []
    assert telling(patiently(failing(3)), notes.append) == "answer"
    (note,) = notes
    assert note.startswith("no answer since ")
    assert note.endswith("10 min in all: the line is cut")


def test_server_that_answers_is_no_news():
    assert telling(patiently(failing(0)), pytest.fail) == "answer"


@pytest.mark.row("K7")
def test_patience_ends():
    with pytest.raises(Away, match="cut"):
        telling(patiently(failing(10**6), seconds=0.05), lambda _: None)
