"""Events that tasks of the local runner pass to their driver: one line of JSON each, in a file that both know.

The runner's own output changes between releases, so nothing is parsed from it.
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
    """An observer that writes; run_started and run_ended are the driver's own words."""

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
        """`stage` did not end well; its record may be open."""
        self._write("failed", stage=stage, exit=error.exit_code, text=str(error))

    def _write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, ensure_ascii=False)
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


@dataclass(slots=True)
class TaskEventReader:
    """Passes on, in order and once each, the events that lie in `folder` by now."""

    folder: Path
    observer: Observer
    failures: list[GanglineError]
    _read: int = 0

    def pass_on(self) -> None:
        for line in self._lines():
            self._tell(json.loads(line))

    def _lines(self) -> Iterator[bytes]:
        """Whole lines alone: the last one may still be written."""
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

    def _tell(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "stage_started":
                self.observer.stage_started(said["stage"])
            case "progress":
                self.observer.progress(said["stage"], from_plain(GangEvent, said["gang"]))
            case "stage_ended":
                self.observer.stage_ended(said["stage"], from_plain(StageInfo, said["info"]))
            case "note":
                self.observer.note(said["text"])
            case "failed":
                self.failures.append(error_for(said["exit"])(said["text"]))
