"""Logs go to the stderr of the moment: one that was closed since breaks no later retry."""

import io
import sys

import pytest
import stamina
import structlog

from gangline.cli.log_setup import set_up_logs


def test_a_stderr_closed_after_the_setup_is_not_written_to(monkeypatch):
    early, late = io.StringIO(), io.StringIO()
    try:
        monkeypatch.setattr(sys, "stderr", early)
        set_up_logs({})
        early.close()
        monkeypatch.setattr(sys, "stderr", late)
        structlog.get_logger().warning("retry", number=2)
    finally:
        structlog.reset_defaults()
    assert '"event": "retry"' in late.getvalue()


def test_an_outage_is_reported_in_a_few_lines_and_a_hiccup_not_at_all(monkeypatch):
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    set_up_logs({})
    try:
        reported = {tries: _reported(said, tries=tries) for tries in (3, 20)}
    finally:
        structlog.reset_defaults()
    assert reported == {3: 0, 20: 3}


def _reported(said, *, tries):
    before = said.getvalue().count('"event": "retry"')
    retry = stamina.RetryingCaller(attempts=tries, wait_initial=0, wait_max=0)
    with pytest.raises(TimeoutError):
        retry(TimeoutError, _fail)
    return said.getvalue().count('"event": "retry"') - before


def _fail():
    raise TimeoutError
