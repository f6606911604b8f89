"""What a person is told who leaves a run: how it goes on, and how to stop it."""

import pytest
from tests.report import records

from gangline.cli.view.plain import PlainView
from gangline.cli.view.run_view import attended_view

RUN = records.bare().run.id


@pytest.mark.parametrize(
    ("drives", "again"), [(True, f"gangline run resumes {RUN}"), (False, f"gangline follow {RUN}")]
)
def test_who_leaves_a_run_is_shown_the_command_that_continues(drives, again, capsys):
    with pytest.raises(KeyboardInterrupt):
        _leave(drives=drives)
    assert capsys.readouterr().err == f"still running: {again} · stop it: gangline cancel {RUN}\n"


def _leave(*, drives):
    with attended_view(PlainView(), drives=drives) as view:
        view.run_started(records.bare())
        raise KeyboardInterrupt
