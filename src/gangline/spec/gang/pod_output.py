"""Output of a pod: lines on stdout while it runs, and one termination message when it ends."""

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from gangline.errors import IntegrityError
from gangline.spec.codec import canonical, from_json, from_plain
from gangline.spec.gang.status import GangEnd, KeeperStatus

RECORD_SEPARATOR = "\x1e"
TERMINATION_BYTES = 4096
"""What the kubelet keeps of a termination message."""
MAX_LINE_BYTES = 16_000
"""Longest line of one event; container runtimes split longer ones."""
_LOG = re.compile(r"([rk])(\d{2,})│ ?(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class PodLine:
    """One line of a pod's stdout; one of the fields is set."""

    rank: int | None = None
    """Whose log line `text` is; None of the keeper's own."""
    text: str | None = None
    event: dict[str, Any] | None = None
    status: KeeperStatus | None = None


def log_line(rank: int, text: str) -> str:
    """`text` as a line of a rank's log."""
    return f"r{rank:02}│ {text}"


def keeper_line(node: int, text: str) -> str:
    """`text` as a line of a keeper's own log."""
    return f"k{node:02}│ {text}"


def event_line(event: dict[str, Any]) -> str:
    """`event` on one line; what is too long for one loses its long values."""
    line = RECORD_SEPARATOR + json.dumps(event, ensure_ascii=False)
    if len(line.encode()) <= MAX_LINE_BYTES:
        return line
    short = {name: value for name, value in event.items() if len(json.dumps(value)) <= 256}
    return RECORD_SEPARATOR + json.dumps(short, ensure_ascii=False)


def status_line(status: KeeperStatus) -> str:
    """`status` as a record line, which `parse` reads back."""
    return RECORD_SEPARATOR + json.dumps({"status": asdict(status)}, ensure_ascii=False)


def parse(line: str) -> PodLine:
    """What `line` says; any other line is a log line of no rank."""
    if line.startswith(RECORD_SEPARATOR):
        return _parse_record(line)
    matched = _LOG.fullmatch(line)
    if matched is None:
        return PodLine(text=line)
    kind, number, text = matched.groups()
    return PodLine(rank=int(number) if kind == "r" else None, text=text)


def to_message(end: GangEnd) -> str:
    """Termination message of a pod: `end` as JSON, its evidence and reason cut until it fits.

    What is known of the processes goes last: without it a gang that ended well is not known to have.
    """
    processes = {name: value for name, value in end.evidence.items() if name == "processes"}
    short = replace(end, reason=end.reason[:800])
    for variant in (
        end, replace(end, evidence=processes), replace(short, evidence=processes, ledger={}),
        replace(short, evidence={}, ledger={}),
    ):  # fmt: skip
        text = canonical(variant)
        if len(text) <= TERMINATION_BYTES:
            return text.decode()
    raise AssertionError("an end without evidence, ledger and long reason fits")


def from_message(text: str) -> GangEnd | None:
    """The end that a termination message holds; None where something else wrote it."""
    try:
        return from_json(GangEnd, text)
    except IntegrityError:
        return None


def _parse_record(line: str) -> PodLine:
    try:
        value = json.loads(line[1:])
        if isinstance(value, dict) and "status" in value:
            return PodLine(status=from_plain(KeeperStatus, value["status"]))
    except (ValueError, IntegrityError):
        return PodLine(text=line[1:])
    return PodLine(event=value) if isinstance(value, dict) else PodLine(text=line[1:])
