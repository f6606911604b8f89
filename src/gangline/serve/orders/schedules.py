"""`trigger.schedule` of branches that publish: remembered from the last order of each, due by the clock in UTC.

A file in the service's home, since a schedule must outlive the order that named it. Each minute of a schedule is
queued once, whichever service looks first; one that was missed for less than an hour is made up for.
"""

import json
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cronsim import CronSim, CronSimError

from gangline.errors import storage_errors
from gangline.serve.database.types import Order
from gangline.spec.config.grammar import is_cron
from gangline.spec.config.line import Line
from gangline.spec.globs import any_matches

LATE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """A branch that is built on a schedule."""

    project: str
    forge: str | None
    repository: str
    ref: str
    branch: str
    cron: str

    def order(self) -> Order:
        """Order to build the commit of that ref, again if it was built before."""
        return Order(
            project=self.project, forge=self.forge, repository=self.repository, ref=self.ref, branch=self.branch,
            cause="schedule", again=True, asked_by=f"schedule {self.cron}",
        )  # fmt: skip


class Schedules:
    """Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def update(self, order: Order, line: Line) -> None:
        """Learn, change or forget the schedule of an order's branch from its line."""
        if order.pull_request is not None or order.trust == "fork" or order.branch is None:
            return
        cron = line.trigger.schedule if any_matches(order.branch, line.publish.branches) else None
        with self._lock:
            known = self._read()
            key = f"{order.project} {order.ref}"
            entry = None if cron is None else {
                "project": order.project, "forge": order.forge, "repository": order.repository, "ref": order.ref,
                "branch": order.branch, "cron": cron,
            }  # fmt: skip
            if known.get(key) == entry:
                return
            known.pop(key, None)
            self._write(known | ({key: entry} if entry else {}))

    def forget(self, project: str, ref: str) -> None:
        """The branch is gone."""
        with self._lock:
            known = self._read()
            if known.pop(f"{project} {ref}", None) is not None:
                self._write(known)

    def all(self) -> list[Scheduled]:
        """Every branch with a schedule."""
        with self._lock:
            return [Scheduled(**each) for each in self._read().values()]

    def due(self, *, since: float, now: float) -> list[tuple[str, Order]]:
        """Orders of schedules with a minute in (since, now], each with a name for that minute."""
        found = []
        for scheduled in self.all():
            minute = newest_minute(scheduled.cron, after=max(since, now - LATE_SECONDS), until=now)
            if minute is not None:
                found.append((f"{scheduled.project} {scheduled.ref} {minute:.0f}", scheduled.order()))
        return found

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _write(self, known: dict[str, Any]) -> None:
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with storage_errors(self._path):
            fresh.write_text(json.dumps(known, sort_keys=True, indent=1), "utf-8")
            fresh.replace(self._path)


def newest_minute(cron: str, *, after: float, until: float) -> float | None:
    """The last minute in (after, until] that `cron` names; times in seconds since the epoch, minutes in UTC.

    None where there is no such minute or `cron` is invalid.
    """
    if not is_cron(cron):  # cronsim also reads seconds, names and `L`, which a line may not use
        return None
    following = datetime.fromtimestamp(until // 60 * 60 + 60, UTC)
    try:
        found = next(CronSim(cron, following, reverse=True), None)
    except CronSimError:  # a day that no month has
        return None
    return found.timestamp() if found is not None and found.timestamp() > after else None
