"""Events of a run for its subscribers: the record changed, progress of the gang, the end of the run."""

import json
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any, Literal

from gangline.launch.protocol import GangEvent
from gangline.report.facts import stages_in_order, verdict_reason, verdict_text
from gangline.report.progress import StageProgress
from gangline.spec.record import Record

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a stream."""

    kind: Literal["record", "progress", "end"]
    data: str
    """JSON."""
    seq: int | None = None
    """Number of the record; a stream resumes after it."""


class GangProgress:
    """Events of a gang as what pages show, steps at most twice a second."""

    def __init__(self, running: str, record: Record, clock: Callable[[], float] = monotonic) -> None:
        plan = record.plan
        self._progress = StageProgress(running, plan=plan.name if plan else "", steps=plan.steps if plan else None)
        self._clock = clock
        self._published = float("-inf")
        self._lock = threading.Lock()

    def see(self, event: GangEvent) -> RunEvent | None:
        """Add an event; returns what to show if it is time to."""
        with self._lock:
            self._progress.see(event)
            if event.data.get("event") == "step" and self._clock() - self._published < PROGRESS_SECONDS:
                return None
            self._published = self._clock()
            return RunEvent("progress", _json(progress_fields(self._progress)))

    def progress(self) -> StageProgress:
        """A copy, for a page that is drawn now."""
        with self._lock:
            return deepcopy(self._progress)


def progress_fields(progress: StageProgress) -> dict[str, Any]:
    """What is not known yet is None."""
    loss = progress.losses[-1] if progress.losses else None
    return {
        "stage": progress.stage,
        "sentence": progress.sentence(),
        "step": progress.step or None,
        "steps": progress.steps,
        "loss": loss if loss is not None and isfinite(loss) else None,
        "tokens_per_second": progress.tokens_per_second,
        "eta_seconds": progress.eta_seconds,
    }


def record_event(record: Record) -> RunEvent:
    """The event with the state of a run."""
    begun = [name for name, info in stages_in_order(record) if info.state != "waiting"]
    data = {
        "run": record.run.id,
        "seq": record.seq,
        "state": record.run.state,
        "verdict": record.run.verdict,
        "words": _words(record),
        "stage": begun[-1] if begun else "resolve",
    }
    return RunEvent("record", _json(data), record.seq)


def end_event(record: Record) -> RunEvent:
    """The last event of a run."""
    run = record.run
    fields = {"run": run.id, "verdict": run.verdict, "words": _words(record), "reason": verdict_reason(record)}
    return RunEvent("end", _json(fields))


def _words(record: Record) -> str:
    """The verdict as people read it; empty while there is none."""
    return verdict_text(record) if record.run.verdict else ""


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)
