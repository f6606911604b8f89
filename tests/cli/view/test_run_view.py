"""What a person is told who leaves a run: how it goes on, and how to stop it."""

import io
import sys

import pytest
import stamina
import structlog
from tests.report import records

from gangline.cli.log_setup import set_up_logs
from gangline.cli.view.run_view import PlainView, attended_view

RUN = records.bare().run.id


@pytest.mark.parametrize(
    ("drives", "again"), [(True, f"gangline run resumes {RUN}"), (False, f"gangline follow {RUN}")]
)
def test_who_leaves_a_run_is_shown_the_command_that_continues(drives, again, capsys):
    with pytest.raises(KeyboardInterrupt):
        _leave(drives=drives)
    assert capsys.readouterr().err == f"still running: {again} · stop it: gangline cancel {RUN}\n"


def test_retries_are_notes_while_a_person_reads_along_and_log_lines_before_and_after(monkeypatch):
    said, logged = [], io.StringIO()
    monkeypatch.setattr(sys, "stderr", logged)
    set_up_logs({})
    try:
        with attended_view(PlainView(said.append)):
            _try_in_vain()
        assert (len(said), logged.getvalue()) == (1, "")
        assert said[0].startswith("note ")
        assert "no answer yet, tried 4 times, again in 0.0 s: 500 no endpoints for the webhook" in said[0]
        _try_in_vain()
        assert '"event": "retry"' in logged.getvalue()
    finally:
        structlog.reset_defaults()


def _try_in_vain():
    def fail():
        raise TimeoutError("500 no endpoints for the webhook")

    with pytest.raises(TimeoutError):
        stamina.RetryingCaller(attempts=6, wait_initial=0, wait_max=0, wait_jitter=0)(TimeoutError, fail)


def _leave(*, drives):
    with attended_view(PlainView(), drives=drives) as view:
        view.run_started(records.bare())
        raise KeyboardInterrupt
