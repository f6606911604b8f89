"""Events from tasks of the local runner to their driver, one line of JSON each in a file.

The output of the runner is not parsed, because it changes between releases.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError, error_for
from gangline.launch.protocol import GangEvent
from gangline.line.record.observer import Observer, SilentObserver
from gangline.spec.codec import from_plain, to_plain
from gangline.spec.record import StageInfo

FILE = "events.jsonl"


@dataclass(frozen=True, slots=True)
class TaskEventWriter(SilentObserver):
    """An observer that writes events to the file; the driver itself reports start and end of the run."""

    folder: Path

    def stage_started(self, name: str) -> None:
        self._write("stage_started", stage=name)

    def progress(self, stage: str, event: GangEvent) -> None:
        self._write("progress", stage=stage, gang=to_plain(event))

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._write("stage_ended", stage=name, info=to_plain(info))

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def failed(self, stage: str, error: GanglineError) -> None:
        """Report the error of a stage, whose run may still be open."""
        self._write("failed", stage=stage, exit=error.exit_code, text=str(error))

    def _write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, ensure_ascii=False)
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


@dataclass(slots=True)
class TaskEventReader:
    """Reads the file in `folder` and forwards each event once, in order."""

    folder: Path
    observer: Observer
    failures: list[GanglineError]
    _read: int = 0

    def forward(self) -> None:
        """Forward the events since the last call; errors go to `failures`."""
        for line in self._lines():
            self._forward(json.loads(line))

    def _lines(self) -> Iterator[bytes]:
        """New complete lines; the last one may still be written."""
        path = self.folder / FILE
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield line

    def _forward(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "stage_started":
                self.observer.stage_started(event["stage"])
            case "progress":
                self.observer.progress(event["stage"], from_plain(GangEvent, event["gang"]))
            case "stage_ended":
                self.observer.stage_ended(event["stage"], from_plain(StageInfo, event["info"]))
            case "note":
                self.observer.note(event["text"])
            case "failed":
                self.failures.append(error_for(event["exit"])(event["text"]))
