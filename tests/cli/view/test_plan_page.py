"""The table of plans at the widths that people look at it with."""

import pytest
from tests.planner.cases import gpus, line
from tests.planner.transformers import EIGHT, H100, transformer

from gangline.cli.view.plan_lines import MOST_ROWS
from gangline.cli.view.plan_page import candidate_table
from gangline.planner.choice import choose_plan


@pytest.fixture(scope="module")
def candidates():
    return choose_plan(line(batch=64), H100, gpus(8), transformer(**EIGHT, sequence=4096)).candidates


@pytest.mark.parametrize("width", [72, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(candidates, width):
    said = candidate_table(candidates, width=width, every=True)
    assert max(map(len, said.splitlines())) <= width
    words = said.split()
    for each in candidates:
        assert {*each.reason.removeprefix("no fit: ").split()} <= set(words)


def test_every_plan_has_memory_step_time_money_and_a_reason_in_one_line_of_a_pipe(candidates):
    header, *rows = candidate_table(candidates, width=None, every=True).splitlines()
    assert header.split() == ["PLAN", "MEMORY", "STEP", "TIME", "MONEY", "WHY"]
    assert [row.split()[0] for row in rows] == [each.name for each in candidates]
    assert "✓ chosen" in rows[0]
    chosen = candidates[0].forecast
    assert f"{chosen.money:.2f}" in rows[0]
    assert rows[0].endswith(candidates[0].reason)


def test_those_far_behind_are_left_to_those_who_ask_why(candidates):
    assert len(candidates) > MOST_ROWS
    lines = candidate_table(candidates, width=None, every=False).splitlines()
    assert len(lines) == 1 + MOST_ROWS + 1
    assert lines[-1] == f"{len(candidates) - MOST_ROWS} more: gangline plan --why"
