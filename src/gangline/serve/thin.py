"""A row of the index from the bytes of a record, without building what no list shows: 100,000 of them are read."""

import json
from dataclasses import replace
from typing import Any

from gangline.errors import IntegrityError
from gangline.serve.types import RunRow, row_of
from gangline.spec.codec import from_plain
from gangline.spec.record import Record

_SEEN = {
    "run": ("id", "project", "attempt", "created", "state", "verdict", "reason", "exit_code"),
    "commit": ("sha", "tree", "branch", "pull_request", "subject", "trust"),
    "inputs": ("line",),
}
_SEEN_OF_EACH = {"stages": ("state", "seconds"), "metrics": ("value", "better", "base", "base_band")}


def thin_row(data: bytes) -> RunRow:
    """The same as `row_of` the whole record.

    Raises:
        IntegrityError: It is no record.
    """
    try:
        plain = json.loads(data)
        seen = {name: _some(plain[name], fields) for name, fields in _SEEN.items()}
        for table, fields in _SEEN_OF_EACH.items():
            seen[table] = {key: _some(each, fields) for key, each in plain.get(table, {}).items()}
        gates = [_some(each, ("name", "verdict", "reason")) for each in plain.get("gates", ())]
        plan = plain.get("plan")
        plan_name = plan["name"] if plan else None
        stop = plain["inputs"].get("values", {}).get("train.stop_at")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"wanted a record, found {data[:40]!r}: {type(error).__name__} {error}") from error
    whole = seen | {"gates": gates, "seq": plain.get("seq", 0), "gang": plain.get("gang"), "schema": plain["schema"]}
    words = f"{plan_name} to {stop}" if plan_name and stop is not None else plan_name
    return replace(row_of(from_plain(Record, whole)), plan=words)


def _some(each: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: each[name] for name in fields if name in each}
