"""Faults, protections and traps of libraries, each with the tests that show it: docs/reference/protections.md.

python -m tests.faults.protections    draw the page of the patches' headers and of the tests' marks
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.faults.mutation import ROOT, Mutation, mutations

PAGE = ROOT / "docs" / "reference" / "protections.md"
ROWS = [f"T{number}" for number in range(1, 12)] + [f"S{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12)]


@dataclass(frozen=True, slots=True)
class Marked:
    """A test file with tests of a row."""

    path: str
    about: str
    """First sentence of its docstring."""
    full: str
    """What its slow tests come to together; empty: it does not say."""


def page(found: Sequence[Mutation]) -> str:
    """The whole page."""
    marked, traps = {row: list(marked_with(row)) for row in ROWS}, [each for each in found if each.trap]
    return _HEAD.format(
        count=len(found),
        rows="\n".join(_row_of_faults(row, marked[row], found) for row in ROWS),
        traps="\n".join(_row_of_traps(each) for each in sorted(traps, key=lambda each: each.trap.strip("`").lower())),
        protections="\n".join(_row_of_protections(each) for each in sorted(found, key=_by_row)),
    )


def marked_with(row: str) -> Iterator[Marked]:
    """Test files that stand for `row`; the one whose name says so comes first."""
    files = sorted(
        (ROOT / "tests").rglob("test_*.py"), key=lambda path: (f"test_{row.lower()}_" not in path.name, path)
    )
    for path in files:
        about, marks = _marks(path)
        full = [full for rows, full in marks if row in rows]
        if full:
            yield Marked(str(path.relative_to(ROOT)), about, "; ".join(dict.fromkeys(filter(None, full))))


@cache
def _marks(path: Path) -> tuple[str, list[tuple[set[str], str]]]:
    """What a test file is about; rows and full size of each `pytest.mark.row` in it."""
    text = path.read_text()
    if "mark.row(" not in text:
        return "", []
    tree, found = ast.parse(text), list[tuple[set[str], str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "row":
            full = [str(ast.literal_eval(each.value)) for each in node.keywords if each.arg == "full"]
            found.append(({str(ast.literal_eval(each)) for each in node.args}, "; ".join(full)))
    return (ast.get_docstring(tree) or "").partition("\n")[0].partition(": ")[2], found


def _row_of_faults(row: str, marked: Sequence[Marked], found: Sequence[Mutation]) -> str:
    full = "; ".join(each.full for each in marked if each.full) or "the smoke slice is all"
    files = ", ".join(f"`{each.path}`" for each in marked)
    count = sum(row in each.row.split() for each in found)
    return f"| {row} | {marked[0].about} | {full} | {files} | {count or 'none of ours'} |"


def _row_of_traps(each: Mutation) -> str:
    return f"| {each.trap} | {each.removes} | {_tests(each)} | `{each.name}` |"


def _row_of_protections(each: Mutation) -> str:
    return f"| {each.row} | {each.removes} | {_tests(each)} | `{each.name}` |"


def _tests(each: Mutation) -> str:
    return ", ".join(f"`{test.removeprefix('tests/')}`" for test in each.tests)


def _by_row(each: Mutation) -> tuple[int, str]:
    first = each.row.split()[0]
    return (ROWS.index(first) if first in ROWS else len(ROWS), each.name)


_HEAD = """# What is protected, and what shows it

{count} protections are removed one by one from a copy of the tree by patches in `tests/faults/mutations`, and the tests
named beside each must then fail for that reason: `make mutations`, or `make mutations ROW=T1` for those of a row. Tests
that fail in the copy as it is, a patch that no longer applies, and a run that has no end where a failure was to come
show nothing and count as missed. The page is drawn of the headers of the patches and of the marks of the tests.

As many are tried at once as there are cores, or `JOBS=4`. What came out well is kept under `build/mutations` for the
very same tree, so that a run which was broken off goes on; `FRESH=1` begins anew, and `JSON=found.json` writes all that
came out.

## Faults

`make faults ROW=T1` runs the smoke slice of a row, which the default suite has, too; `make faults ROW=T1 FULL=1` runs
its full size, `SEED=17` takes other places and times.

| row | what happens | full size | tests | protections |
|---|---|---|---|---|
{rows}

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
