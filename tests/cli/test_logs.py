"""Logs go to the stderr of the moment: one that was closed since breaks no later retry."""

import io
import sys

import structlog

from gangline.cli.logs import set_up_logs


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
