"""Waiting for an API server that is away."""

from math import inf

import pytest

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.kubernetes.follow import api_retry
from gangline.launch.kubernetes.follow.api_retry import report_retries, retry_while_unavailable


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(api_retry, "PAUSE_SECONDS", 0.01)


def failing(times):
    left = [times]

    def call():
        left[0] -= 1
        if left[0] >= 0:
            raise ApiUnavailable("the line is cut")
        return "answer"

    return call


@pytest.mark.row("K7")
def test_outage_is_reported_once_and_outlasted():
    notes = []
    assert report_retries(retry_while_unavailable(failing(3)), notes.append) == "answer"
    (note,) = notes
    assert note.startswith("no answer since ")
    assert note.endswith("10 min: the line is cut")


def test_wait_without_limit_names_none():
    notes = []
    assert report_retries(retry_while_unavailable(failing(1), seconds=inf), notes.append) == "answer"
    assert ", retrying: the line is cut" in notes[0]


def test_server_that_answers_is_not_news():
    assert report_retries(retry_while_unavailable(failing(0)), pytest.fail) == "answer"


@pytest.mark.row("K7")
def test_patience_ends():
    with pytest.raises(ApiUnavailable, match="cut"):
        report_retries(retry_while_unavailable(failing(10**6), seconds=0.05), lambda _: None)
