"""Results on stdout: JSON documents, plain tables, files."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.cli.terminal import say
from gangline.errors import storage_errors
from gangline.report.text import clean
from gangline.sanitize import to_json
from gangline.spec.codec import to_plain


def print_json(value: Any) -> None:
    """One document: indented for a person, one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    say(to_json(to_plain(value), indent=indent))


def answer(value: Any, text: str, *, json: bool) -> None:
    """The result of a command: `value` as JSON, or `text` for a person."""
    if json:
        print_json(value)
    else:
        say(text)


def print_or_write(text: str, out: Path | None) -> None:
    """Print `text` on stdout where `out` is nothing or `-`; else write it into that file and print its path.

    Raises:
        StorageError: It cannot be written.
    """
    if out is None or str(out) == "-":
        say(text, nl=False)
        return
    write_text(out, text)
    say(out)


def write_text(path: Path, text: str) -> None:
    """Write `text` into a file, whose folder is made where it is missing.

    Raises:
        StorageError: It cannot be written.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def terminal_width(otherwise: int = 100) -> int:
    """Columns of the terminal, from 72 to 120; `otherwise` if stdout is not one."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise
    return min(max(columns, 72), 120)


def columns(rows: Sequence[Sequence[str]], *, last: int = 200) -> str:
    """Rows as aligned columns, two blanks apart; the last column keeps its own length, up to `last`."""
    shown = [[clean(cell, 60) for cell in row[:-1]] + [clean(row[-1], last)] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]) - 1)] if shown else []
    lines = ("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in shown)
    return "\n".join(line.rstrip() for line in lines)


def dash(value: object) -> str:
    """What is not known shows as a dash."""
    return "-" if value is None or value == "" else str(value)


def wrap_facts(line: str, width: int | None) -> list[str]:
    """Lines of `name      facts`, which continue below the facts; None: one line."""
    if width is None or len(line) <= width:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent=" " * 10, break_on_hyphens=False)
