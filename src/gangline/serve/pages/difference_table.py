"""Table of the differences between runs, one column per run; rows in which all runs agree are left out."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from gangline.report.comparison.reads import are_listed, content_words
from gangline.report.inputs import imported_versions
from gangline.report.text import short
from gangline.spec.record import Record
from gangline.spec.replica_shares import shares_words

_SHOWN_ROWS = 120
"""Most rows of one kind."""


class TableCell(NamedTuple):
    """What one run has in a row of the comparison."""

    value: str
    note: str = ""
    mark: str = ""
    kind: str = ""
    """Class of the cell: side of the band, `best`, `same`."""


class TableRow(NamedTuple):
    """One property, with a cell for each run that is compared."""

    name: str
    cells: list[TableCell]
    note: str = ""


def differences(ordered: Sequence[Record]) -> list[tuple[str, list[TableRow]]]:
    """Rows by kind in which not all are alike."""
    tables = [_inputs_of(record) for record in ordered]
    kinds = []
    for kind in tables[0]:
        names = sorted({name for table in tables for name in table[kind]})
        rows = [_difference(name, [table[kind].get(name) for table in tables]) for name in names]
        found = [row for row in rows if any(cell.kind != "same" for cell in row.cells[1:])]
        if found:
            kinds.append((kind, found[:_SHOWN_ROWS]))
    return kinds


def _inputs_of(record: Record) -> dict[str, dict[str, str]]:
    inputs, plan = record.inputs, record.plan
    digests = {"code": inputs.code, "environment": inputs.environment, "image": inputs.image, "data": inputs.data}
    shape = {"name": plan.name, "ranks": plan.world_size, "precision": plan.precision, "device": plan.device,
             "micro batch": plan.micro_batch,
             "samples by replica": shares_words(plan.shares) or "equal"} if plan else {}  # fmt: skip
    ran = record.ran
    reads = (*ran.reads, *ran.listed) if ran is not None and are_listed(ran) else ()
    return {
        "line.toml": {name: _said(value) for name, value in inputs.values.items()},
        "package": imported_versions(record) or dict(inputs.versions),
        "digest": {name: short(digest, 12) for name, digest in digests.items() if digest},
        "plan": {name: str(value) for name, value in shape.items()},
        "undeclared read": {read.path: content_words(read) for read in reads},
        "run": {"target": record.run.target, "seeds": ", ".join(map(str, inputs.seeds))},
    }


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _difference(name: str, values: Sequence[str | None]) -> TableRow:
    said = ["-" if value is None else value for value in values]
    return TableRow(
        name, [TableCell(value, kind="same" if place and value == said[0] else "") for place, value in enumerate(said)]
    )
