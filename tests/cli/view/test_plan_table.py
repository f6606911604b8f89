"""The table of plans at the widths that people look at it with, of inspected models and of those known by a shape."""

import re
from dataclasses import replace

import pytest
from tests.planner.cases import gpus, line
from tests.planner.transformers import EIGHT, H100, transformer

from gangline.cli.view.plan_table import MOST_ROWS, nearest_rows, plan_table
from gangline.planner.choice import choose_plan

CAPACITY = 80e9


@pytest.fixture(scope="module")
def choice():
    return choose_plan(line(batch=64), H100, gpus(8), transformer(**EIGHT, sequence=4096))


@pytest.fixture(scope="module")
def rows(choice):
    return choice.rows()


def table(rows, *, width=None, every=True, capacity=CAPACITY):
    return plan_table(rows, capacity_bytes=capacity, width=width, every=every).splitlines()


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(rows, width):
    said = table(rows, width=width)
    assert max(map(len, said)) <= width
    words = " ".join(said).split()
    for name, each in rows:
        assert {*each.reason.split(), *name.split()} <= set(words)


def test_a_plan_is_one_line_of_a_pipe_with_memory_step_time_money_and_a_reason(rows):
    header, *lines = table(rows)[: 1 + len(rows)]
    assert header.split() == [
        "PLAN",
        *["WGT", "GRAD", "OPTM", "ACTIV", "GATH", "MEMORY", "GB", "STEP", "TIME", "MONEY", "WHY"],
    ]
    assert [each.split()[0] for each in lines] == [name.split()[0] for name, _ in rows]
    [(_, chosen), *_] = rows
    assert "✓ chosen" in lines[0]
    assert f"{chosen.forecast.memory_bytes / 1e9:.1f}" in lines[0]
    assert f"{chosen.forecast.money:.2f}" in lines[0]
    assert lines[0].endswith(chosen.reason)


def test_causes_leave_the_row_before_the_time_does_and_the_bar_goes_below(rows):
    wide, narrow, least = (table(rows, width=width) for width in (120, 80, 62))
    assert "ACTIV" in wide[0]
    assert "TIME" in narrow[0]
    assert not {"ACTIV", "WHY"} & {*narrow[0].split()}
    assert "TIME" not in least[0]
    assert {"STEP", "MONEY"} < {*least[0].split()}
    assert narrow[2].startswith("    W")


def test_there_is_no_bar_without_the_memory_of_a_device_or_where_models_fill_no_mark_of_it(rows):
    legend = "a mark of a bar is 4.0 GB of a device: W weights, G gradients"
    assert legend in "\n".join(table(rows))
    for capacity in (0.0, 1e15):
        said = "\n".join(table(rows, capacity=capacity))
        assert "a mark" not in said
        assert "·" not in said.splitlines()[1]


def test_a_plan_without_room_has_its_need_and_no_time(rows):
    name, candidate = next(each for each in rows if each[1].verdict == "no_fit")
    [row] = [each for each in table(rows) if each.startswith(f"{name} ") and "✗" in each]
    assert candidate.reason.startswith("no fit: ")
    assert re.search(r" - +- +-  no fit: ", row)
    assert row.endswith(candidate.reason)


def test_the_unit_is_that_of_the_chosen_plan_for_all_rows(rows):
    name, chosen = rows[0]
    small = replace(chosen, forecast=replace(chosen.forecast, memory_bytes=1_500_000, memory_causes=()))
    header, first, second = table([(name, small), *rows[1:2]])[:3]
    assert "MEMORY MB" in header
    assert " 1.5 " in first
    assert f" {rows[1][1].forecast.memory_bytes / 1e6:.1f} " in second


def test_those_far_behind_are_left_to_those_who_ask_why(rows):
    assert len(rows) > MOST_ROWS
    lines = table(rows, every=False)
    assert len(lines) == 1 + MOST_ROWS + 2
    assert lines[-1] == f"{len(rows) - MOST_ROWS} more: gangline plan --why"


def test_the_nearest_are_those_that_run_and_two_of_each_kind_that_does_not(rows):
    shown = [each.verdict for _, each in nearest_rows(rows)]
    assert shown[0] == "chosen"
    assert shown.count("no_fit") == min(2, sum(each.verdict == "no_fit" for _, each in rows))
    assert len(shown) == MOST_ROWS


def test_plans_that_share_a_name_differ_by_their_degrees(choice, rows):
    names = [name for name, _ in rows]
    assert len(set(names)) == len(names) > len({each.name for each in choice.candidates})
    assert all(choice.candidate(name) is each for name, each in rows)
