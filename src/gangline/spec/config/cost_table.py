"""`optimizer.cost`: a file of the repository with measured seconds of matrix updates, which becomes part of the line.

`gangline plan --measure-costs FILE` writes such a file. Its content travels in the line and in plans: ranks read none.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gangline.spec.config.problems import ConfigProblem, one_of, shorten, show
from gangline.spec.globs import is_inside

KEY = "optimizer.cost"
MODEL = "model"
"""Seconds by operations and an assumed rate."""
FORMAT = 1
MOST_ROWS = 1_000
LEAST_SECONDS, MOST_SECONDS = 1e-9, 86_400.0
"""Bounds on one update; sums over a model stay far from what a float cannot hold."""
DTYPES = ("bfloat16", "float16", "float32")
_HEAD = ("format", "device", "torch", "rows")
_ROW = ("rule", "rows", "columns", "batch", "dtype", "seconds", "refresh_seconds")
_WORKS = "gangline plan --measure-costs FILE writes one"


def with_cost_table(
    optimizer: Mapping[str, Any], reader: Callable[[str], bytes | None]
) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """The table `[optimizer]` with the content of the file that its `cost` names, or what is wrong with that file.

    A table without matrix rule, what is no path inside the repository and a file that is not there are left to the
    rules of the table, which do not hold where a task reads it as it likes.
    """
    table, cost = dict(optimizer), optimizer.get("cost", MODEL)
    is_path = isinstance(cost, str) and cost != MODEL and is_inside(cost)
    content = reader(cost) if is_path and "rule" in table else None
    if content is None:
        return table, []
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        return table, [ConfigProblem(KEY, f"JSON in {show(cost)}", shorten(str(error)), _WORKS)]
    if problems := list(cost_table_problems(found)):
        return table, problems
    return {**table, "cost": {**found, "file": cost, "sha256": hashlib.sha256(content).hexdigest()}}, []


def cost_table_problems(found: Any) -> Iterator[ConfigProblem]:
    """What a plan would refuse of the content of such a file."""
    if not isinstance(found, dict) or any(key not in found for key in _HEAD):
        yield ConfigProblem(KEY, f"an object with {', '.join(_HEAD)}", show(found), _WORKS)
        return
    rows = found["rows"]
    if found["format"] != FORMAT:
        yield ConfigProblem(f"{KEY}.format", f"{FORMAT}", show(found["format"]), _WORKS)
    for name in ("device", "torch"):
        if not isinstance(found[name], str) or not found[name]:
            yield ConfigProblem(f"{KEY}.{name}", "a name", show(found[name]), _WORKS)
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_ROWS:
        yield ConfigProblem(f"{KEY}.rows", f"1 to {MOST_ROWS} rows", show(rows), _WORKS)
        return
    seen = set()
    for number, row in enumerate(rows):
        key = f"{KEY}.rows[{number}]"
        problems = list(_row_problems(key, row))
        yield from problems
        if not problems:
            kind = tuple(row[name] for name in _ROW[:5])
            if kind in seen:
                yield ConfigProblem(key, "one row for each rule, shape, batch and dtype", f"{kind} again", _WORKS)
            seen.add(kind)


def _row_problems(key: str, row: Any) -> Iterator[ConfigProblem]:
    if not isinstance(row, dict) or set(row) != set(_ROW):
        yield ConfigProblem(key, f"an object with {', '.join(_ROW)}", show(row), _WORKS)
        return
    if not isinstance(row["rule"], str) or not row["rule"]:
        yield ConfigProblem(f"{key}.rule", "a rule and its kernel", show(row["rule"]), '"muon/standard" is one')
    for name in ("rows", "columns", "batch"):
        if not _is_count(row[name]):
            yield ConfigProblem(f"{key}.{name}", "a whole number, 1 or more", show(row[name]), _WORKS)
    if row["dtype"] not in DTYPES:
        yield ConfigProblem(f"{key}.dtype", one_of(list(DTYPES)), show(row["dtype"]), _WORKS)
    if _is_count(row["rows"]) and _is_count(row["columns"]) and row["rows"] > row["columns"]:
        yield ConfigProblem(f"{key}.rows", "the smaller side", show(row["rows"]), "write the larger one as columns")
    for name, least in (("seconds", LEAST_SECONDS), ("refresh_seconds", 0.0)):
        if not _is_number(row[name]) or not least <= row[name] <= MOST_SECONDS:
            wanted = f"seconds from {least:g} to {MOST_SECONDS:g}"
            yield ConfigProblem(f"{key}.{name}", wanted, show(row[name]), _WORKS)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1 << 31


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
