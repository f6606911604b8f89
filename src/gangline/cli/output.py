"""Results on stdout: JSON documents and plain tables. What records hold is cleaned before a terminal sees it."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer

from gangline.report.text import clean
from gangline.spec.codec import to_plain


def print_json(value: Any) -> None:
    """One document: indented for a person, one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    typer.echo(json.dumps(to_plain(value), sort_keys=True, ensure_ascii=False, indent=indent))


def columns(rows: Sequence[Sequence[str]], *, last: int = 200) -> str:
    """Rows as aligned columns, two blanks apart; the last column keeps its own length, up to `last`."""
    shown = [[clean(cell, 60) for cell in row[:-1]] + [clean(row[-1], last)] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]) - 1)] if shown else []
    lines = ("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in shown)
    return "\n".join(line.rstrip() for line in lines)


def dash(value: object) -> str:
    """What is not known shows as a dash."""
    return "-" if value is None or value == "" else str(value)
