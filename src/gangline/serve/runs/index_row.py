"""Index row of a run from the bytes of its record, without building what no list shows: 100,000 records are read so."""

import re
from dataclasses import replace
from datetime import datetime
from math import isfinite
from typing import Any

from gangline.errors import IntegrityError
from gangline.report.facts import headline, plan_words, stages_in_order, total_seconds, verdict_reason, verdict_word
from gangline.serve.database.types import RunRow
from gangline.spec.codec import from_plain, read_json
from gangline.spec.record import Record
from gangline.spec.run_flags import flags_of

_SEEN = {
    "run": ("id", "project", "attempt", "created", "state", "verdict", "reason", "exit_code"),
    "commit": ("sha", "tree", "branch", "pull_request", "subject", "trust", "patch"),
    "inputs": ("line", "overrides"),
}
_SEEN_OF_EACH = {"stages": ("state", "seconds"), "metrics": ("value", "better", "base", "base_band")}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})")
LONGEST = 16_384
"""Characters of a text in a row."""


def row_from_bytes(prefix: str, data: bytes) -> RunRow:
    """The same as `row_of` the whole record, which lies below `prefix`: the key says which run it is.

    Raises:
        IntegrityError: It is no record, or that of another key.
    """
    try:
        plain = read_json(data)
        seen = {name: _some(plain[name], fields) for name, fields in _SEEN.items()}
        for table, fields in _SEEN_OF_EACH.items():
            seen[table] = {key: _some(each, fields) for key, each in plain.get(table, {}).items()}
        gates = [_some(each, ("name", "verdict", "reason")) for each in plain.get("gates", ())]
        drills = [_some(each, ("name", "row", "result", "reason")) for each in plain.get("drills", ())]
        plan = plain.get("plan")
        plan_name = plan["name"] if plan else None
        stop = plain["inputs"].get("values", {}).get("train.stop_at")
        words = f"{plan_name} to {stop}" if plan_name and stop is not None else plan_name
        schema = plain["schema"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"wanted a record, found {data[:40]!r}: {type(error).__name__} {error}") from error
    whole = seen | {
        "gates": gates,
        "drills": drills,
        "seq": plain.get("seq", 0),
        "gang": plain.get("gang"),
        "schema": schema,
    }
    record = from_plain(Record, whole)
    if record.prefix != prefix:
        raise IntegrityError(f"it calls itself {record.prefix[:200]}: a record is the run of its key")
    return checked_row(replace(row_of(record), plan=words))


def checked_row(row: RunRow) -> RunRow:
    """`row`, once every database can hold it and every list can sort and draw it.

    Raises:
        IntegrityError: A number, a text or a time in it is none.
    """
    for name in RunRow.__slots__:
        if not _is_sound(getattr(row, name)):
            raise IntegrityError(f"wanted a text, a number of 64 bits or nothing as {name}, found another value")
    if not _is_time(row.created):
        raise IntegrityError(f"wanted the time of its birth, found {row.created[:40]!r}")
    return row


def _is_sound(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or (isinstance(value, float) and isfinite(value))


def _is_time(text: str) -> bool:
    try:
        return _TIME.fullmatch(text) is not None and datetime.fromisoformat(text).timestamp() > 0
    except (ValueError, OverflowError):
        return False


def _some(each: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: each[name] for name in fields if name in each}


def row_of(record: Record) -> RunRow:
    """What lists show of a record."""
    judged = headline(record)
    band = judged.metric.base_band if judged else None
    begun = [name for name, info in stages_in_order(record) if info.state != "waiting"]
    failed = [name for name, info in stages_in_order(record) if info.state == "failed"]
    waiting = record.gang.waiting if record.gang and record.run.state == "open" else None
    return RunRow(
        run=record.run.id,
        project=record.run.project,
        commit=record.commit.sha,
        branch=record.commit.branch,
        subject=record.commit.subject,
        pull_request=record.commit.pull_request,
        trust=record.commit.trust,
        state=record.run.state,
        verdict=verdict_word(record),
        reason=verdict_reason(record),
        attempt=record.run.attempt,
        created=record.run.created,
        plan=plan_words(record),
        metric=judged.name if judged else None,
        value=judged.metric.value if judged else None,
        base=band.center if band else judged.metric.base if judged else None,
        side=judged.side if judged else "unknown",
        seconds=total_seconds(record),
        stage=(failed or begun or ["resolve"])[-1],
        waiting=waiting.who if waiting else None,
        exit_code=record.run.exit_code,
        seq=record.seq,
        marks=" · ".join(flags_of(record)),
    )
