"""A rank that was found slow while the run went on is said wherever its time is told."""

from dataclasses import replace

import pytest
from tests.report.records import passed

from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.record import SLOW, Event

SAID = "rank 3 on node 1 is slow since step 71"
EVENT = Event(time="2026-01-01T00:00:00Z", stage="train", kind=SLOW, text=SAID)


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_slow_rank_is_said_next_to_the_time_that_was_lost(draw):
    record = passed()
    assert SAID not in draw(record)
    assert draw(replace(record, events=(EVENT,))).count(SAID) >= 1
