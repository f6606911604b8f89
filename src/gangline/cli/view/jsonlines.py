"""JSON lines of a run, one object per event; the last one contains the whole record."""

import time
from collections.abc import Callable
from typing import Any, Self

from gangline.cli.terminal import say
from gangline.launch.protocol import GangEvent
from gangline.sanitize import to_json
from gangline.spec.codec import to_plain
from gangline.spec.record import Record, StageInfo


class JsonView:
    """An observer of `gangline.line` for programs."""

    def __init__(self, echo: Callable[[str], None] = say) -> None:
        self._echo = echo
        self.run_id: str | None = None
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

    def run_started(self, record: Record) -> None:
        self.run_id = record.run.id
        self._say("run_started", run=record.run.id, prefix=record.prefix, state=record.run.state)

    def stage_started(self, name: str) -> None:
        self._say("stage_started", stage=name)

    def progress(self, stage: str, event: GangEvent) -> None:
        self._say("progress", stage=stage, **to_plain(event))

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._say("stage_ended", stage=name, info=to_plain(info))

    def note(self, text: str) -> None:
        self._say("note", text=text)

    def run_ended(self, record: Record) -> None:
        self.ended = record.run.state == "ended"
        self._say("run_ended", run=record.run.id, record=to_plain(record))

    def _say(self, event: str, **fields: Any) -> None:
        line = {"event": event, "time": round(time.time(), 3), **fields}
        self._echo(to_json(line))
