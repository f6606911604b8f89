"""Rows of the goal sheet that the training runtime and its checkpoints answer for: each has tests, small and full."""

import re
from collections import defaultdict

import pytest
from tests.faults.mutation import ROOT, mutations
from tests.faults.protections import PAGE, ROWS, marked_with, page

SMALL_IS_ALL = {"S11", "T10"}
"""Rows whose smoke slice covers every case there is."""
THE_SERVERS_OWN = "S7"
"""What protects there is no code of ours."""


def files_by_row():
    found = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for words in re.findall(r"mark\.row\(([^)]*)\)", path.read_text()):
            for row in re.findall(r'"(\w+)"', words):
                found[row].add(path)
    return found


FILES = files_by_row()


@pytest.mark.parametrize("row", ROWS)
def test_row_has_a_smoke_slice_and_a_full_size(row):
    files = FILES[row]
    assert files, f"row {row} has no test"
    texts = {path: path.read_text() for path in files}
    is_whole_file_slow = re.compile(r"^pytestmark = .*mark\.slow", re.MULTILINE)
    assert any(not is_whole_file_slow.search(text) for text in texts.values()), f"row {row} has no smoke slice"
    assert row in SMALL_IS_ALL or any("mark.slow" in text for text in texts.values()), f"row {row} has no full size"


@pytest.mark.parametrize("row", [row for row in ROWS if row != THE_SERVERS_OWN])
def test_row_is_shown_to_fail_without_its_protection(row):
    assert row in {each for mutation in mutations() for each in mutation.row.split()}


@pytest.mark.parametrize("row", sorted(set(ROWS) - SMALL_IS_ALL))
def test_row_says_what_its_full_size_comes_to(row):
    assert any(each.full for each in marked_with(row))


def test_patches_named_so_are_traps_and_say_which():
    assert {each.name for each in mutations() if each.name.startswith("trap-")} <= {
        each.name for each in mutations() if each.trap
    }


def test_the_page_of_protections_is_current():
    assert PAGE.read_text() == page(mutations()), "python -m tests.faults.protections draws it again"
