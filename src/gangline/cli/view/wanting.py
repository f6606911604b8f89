"""An observer that leaves a request for a profile once its run has a name, and otherwise hands on what it hears."""

from gangline.launch.protocol import GangEvent
from gangline.line.observer import Observer
from gangline.line.profiles import leave_request
from gangline.spec.record import Record, StageInfo
from gangline.storage.protocol import ObjectStore


class WantsProfile:
    """Around another observer."""

    def __init__(self, inner: Observer, store: ObjectStore, window: tuple[int, int]) -> None:
        self._inner, self._store, self._window = inner, store, window

    def run_started(self, record: Record) -> None:
        self._inner.run_started(record)
        if record.run.state == "open":
            first, last = self._window
            leave_request(self._store, record, first=first, last=last, ranks=(0,))

    def stage_started(self, name: str) -> None:
        self._inner.stage_started(name)

    def progress(self, stage: str, event: GangEvent) -> None:
        self._inner.progress(stage, event)

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._inner.stage_ended(name, info)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def run_ended(self, record: Record) -> None:
        self._inner.run_ended(record)
