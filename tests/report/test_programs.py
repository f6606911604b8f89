"""What no strategy was asked of is told by its processes, wherever a plan is told."""

from dataclasses import replace

import pytest
from tests.report.records import passed

from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page

SAID = "2 processes; the program decides how"


def command(**values):
    record = passed()
    own = {"project.command": ["python", "train.py"], "train.strategy": "auto"} | values
    return replace(record, stages={}, inputs=replace(record.inputs, values=record.inputs.values | own))


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_a_program_is_reported_by_its_processes(draw):
    said = draw(command())
    assert SAID in said
    assert "gathers parameters" not in said


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_a_strategy_that_was_asked_for_keeps_its_name(draw):
    said = draw(command(**{"train.strategy": "ddp"}))
    assert SAID not in said
    assert "ddp-2" in said
