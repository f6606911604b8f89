"""Faults, protections and traps of libraries, each with the tests that show it: tests/faults/protections.md.

python -m tests.faults.protections    draw the page of the patches' headers and of the tests' marks
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.faults.mutation import ROOT, Mutation, mutations
from tests.faults.rows import FAMILIES, NOT_OURS, NOT_SHOWN, ROWS, SMALL_IS_ALL, WHAT

PAGE = ROOT / "tests" / "faults" / "protections.md"
SUITES = ("default", "long", "tools", "cluster")
"""Where a smoke slice may run, the one that needs least first."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A `pytest.mark.row` and what else its test is marked with."""

    rows: frozenset[str]
    full: str
    suite: str
    """One of SUITES; `slow` where the test is no smoke slice."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A test file with tests of a row."""

    path: str
    about: str
    """First sentence of its docstring."""
    full: str
    """What its slow tests come to together; empty: it does not say."""
    suites: frozenset[str]
    """Of its tests of the row."""


def page(found: Sequence[Mutation]) -> str:
    """The whole page."""
    traps = [each for each in found if each.trap]
    return _HEAD.format(
        count=len(found),
        families="\n".join(_family(name, rows, found) for name, rows in FAMILIES.items()),
        missing="\n".join(f"- {row}. {reason}." for row, reason in NOT_SHOWN.items()),
        traps="\n".join(_row_of_traps(each) for each in sorted(traps, key=lambda each: each.trap.strip("`").lower())),
        protections="\n".join(_row_of_protections(each) for each in sorted(found, key=_by_row)),
    )


def marked_with(row: str) -> Iterator[Marked]:
    """Test files that stand for `row`; the one whose name says so comes first."""
    for path in sorted(_test_files(), key=lambda path: f"test_{row.lower()}_" not in path.name):
        about, marks = _marks(path)
        own = [mark for mark in marks if row in mark.rows]
        if own:
            full = "; ".join(dict.fromkeys(mark.full for mark in own if mark.full))
            yield Marked(str(path.relative_to(ROOT)), about, full, frozenset(mark.suite for mark in own))


def smoke_suite(marked: Sequence[Marked]) -> str | None:
    """The suite that has a smoke slice and needs least; None: no suite has one."""
    found = {suite for each in marked for suite in each.suites}
    return next((suite for suite in SUITES if suite in found), None)


@cache
def _test_files() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


@cache
def _marks(path: Path) -> tuple[str, list[Mark]]:
    """What a test file is about, and each `pytest.mark.row` in it."""
    text = path.read_text()
    if "mark.row(" not in text:
        return "", []
    tree = ast.parse(text)
    of_file = {name for each in tree.body if _is_assigned(each, "pytestmark") for name in _names(ast.walk(each))}
    found = [mark for each in tree.body for mark in _marks_of(each, of_file)]
    return (ast.get_docstring(tree) or "").partition("\n")[0].partition(": ")[2], found


def _marks_of(statement: ast.stmt, of_file: set[str]) -> Iterator[Mark]:
    """Of one test, of a class of tests, or of the whole file."""
    decorators = getattr(statement, "decorator_list", [])
    bare = (part for each in decorators for part in (each, each.func if isinstance(each, ast.Call) else each))
    words = of_file | _names(bare)
    suite = next((word for word in ("slow", "long", "cluster", "tools") if word in words), "default")
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "row":
            full = [str(ast.literal_eval(each.value)) for each in node.keywords if each.arg == "full"]
            yield Mark(frozenset(str(ast.literal_eval(each)) for each in node.args), "; ".join(full), suite)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """Of `pytest.mark.NAME`, without what is called."""
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _is_assigned(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(each, ast.Name) and each.id == name for each in statement.targets
    )


def _family(name: str, rows: Sequence[str], found: Sequence[Mutation]) -> str:
    lines = "\n".join(_row_of_faults(row, list(marked_with(row)), found) for row in rows if row not in NOT_SHOWN)
    return f"### {name}\n\n{_FAULTS}\n{lines}\n"


def _row_of_faults(row: str, marked: Sequence[Marked], found: Sequence[Mutation]) -> str:
    full = SMALL_IS_ALL.get(row) or "; ".join(each.full for each in marked if each.full)
    files = ", ".join(f"`{each.path.removeprefix('tests/')}`" for each in marked)
    suite = smoke_suite(marked)
    where = "" if suite == "default" else f" (needs `{suite}`)"
    count = sum(row in each.row.split() for each in found)
    return f"| {row} | {WHAT.get(row) or marked[0].about} | {full} | {files}{where} | {NOT_OURS.get(row) or count} |"


def _row_of_traps(each: Mutation) -> str:
    return f"| {each.trap} | {each.removes} | {_tests(each)} | `{each.name}` |"


def _row_of_protections(each: Mutation) -> str:
    return f"| {each.row} | {each.removes} | {_tests(each)} | `{each.name}` |"


def _tests(each: Mutation) -> str:
    return ", ".join(f"`{test.removeprefix('tests/')}`" for test in each.tests)


def _by_row(each: Mutation) -> tuple[int, str]:
    first = each.row.split()[0]
    return (ROWS.index(first) if first in ROWS else len(ROWS), each.name)


_FAULTS = "| row | what happens | full size | tests | protections |\n|---|---|---|---|---|"

_HEAD = """# What is protected, and what shows it

{count} protections are removed one by one from a copy of the tree by patches in `tests/faults/mutations`, and the tests
named with each must then fail for that reason: `make mutations`, or `make mutations ROW=T1` for those of a row. Tests
that fail in the copy as it is, a patch that no longer applies, and a run that has no end where a failure was to come
show nothing and count as missed. The page is drawn of the headers of the patches and of the marks of the tests.

As many are tried at once as there are cores, or `JOBS=4`. What came out well is kept under `build/mutations` for the
very same tree, so that a run which was broken off continues; `FRESH=1` begins again, and `JSON=found.json` writes all
that came out.

## Faults

`make faults ROW=T1` runs the smoke slice of a row, which the default suite has, too, unless the row says what it needs.
`make faults ROW=T1 FULL=1` runs its full size, `SEED=17` takes other places and times. Tests lie below `tests`, and the
last column counts the protections of the row in the list at the end.

{families}
Not shown by any test:

{missing}

## Traps of libraries

What a library does that would train something else, lose something or hang, and what stands in its way here.

| trap | what is here | tests that fail without it | patch |
|---|---|---|---|
{traps}

## All protections

| row | what is removed | tests that must fail | patch |
|---|---|---|---|
{protections}
"""


def main(target: Path = PAGE) -> None:
    target.write_text(page(mutations()))


if __name__ == "__main__":
    main()
