"""Rows of the goal sheet: each has a smoke slice, a full size, and a protection whose removal its tests notice."""

import re

import pytest
from tests.faults.mutation import ROOT, mutations
from tests.faults.protections import PAGE, SUITES, marked_with, page, smoke_suite
from tests.faults.rows import NOT_OURS, NOT_SHOWN, ROWS, SMALL_IS_ALL, WHAT

SHOWN = [row for row in ROWS if row not in NOT_SHOWN]


@pytest.fixture(scope="module")
def marked():
    """Test files of each row that is shown."""
    return {row: list(marked_with(row)) for row in SHOWN}


def test_every_row_has_a_smoke_slice(marked):
    assert [row for row in SHOWN if not marked[row]] == [], "rows without a test"
    assert [row for row in SHOWN if smoke_suite(marked[row]) not in SUITES] == [], "rows that have slow tests alone"


def test_every_row_has_a_full_size_and_says_what_it_comes_to(marked):
    rows = [row for row in SHOWN if row not in SMALL_IS_ALL]
    texts = {row: [(ROOT / each.path).read_text() for each in marked[row]] for row in rows}
    assert [row for row in rows if not any("mark.slow" in text for text in texts[row])] == []
    assert [row for row in rows if not any(each.full for each in marked[row])] == []


def test_every_row_is_shown_to_fail_without_its_protection(marked):
    """A mutation of it is noticed by a test of it."""
    noticed = {
        (row, test.partition("::")[0])
        for mutation in mutations()
        for row in mutation.row.split()
        for test in mutation.tests
    }
    rows = [row for row in SHOWN if row not in NOT_OURS]
    assert [row for row in rows if not any((row, each.path) in noticed for each in marked[row])] == []


def test_every_row_says_what_happens(marked):
    assert [row for row in SHOWN if not (WHAT.get(row) or marked[row][0].about)] == []


def test_what_is_said_of_rows_is_said_of_rows_there_are():
    assert {*NOT_SHOWN, *NOT_OURS, *SMALL_IS_ALL, *WHAT} <= set(ROWS)
    assert [row for row in NOT_SHOWN if any(marked_with(row))] == []


def test_every_row_of_the_families_that_a_test_is_marked_with_is_listed():
    families = {re.sub(r"\d", "", row) for row in ROWS}
    found = {
        row
        for path in (ROOT / "tests").rglob("test_*.py")
        for words in re.findall(r"mark\.row\(([^)]*)\)", path.read_text())
        for row in re.findall(r'"([A-Z]+\d+)"', words)
    }
    assert {row for row in found if re.sub(r"\d", "", row) in families} <= set(ROWS)


def test_patches_named_so_are_traps_and_say_which():
    assert {each.name for each in mutations() if each.name.startswith("trap-")} <= {
        each.name for each in mutations() if each.trap
    }


def test_the_page_of_protections_is_current():
    assert PAGE.read_text() == page(mutations()), "python -m tests.faults.protections draws it again"
