"""Observer of a run: the protocol of the live view, of plain and JSON lines, and of tests.

Calls come from the driver's thread, in this order: run_started, then for each stage stage_started, progress or note
any number of times, stage_ended; last run_ended, also after a failure. An observer never changes a run.
"""

from typing import Protocol

from gangline.launch.protocol import GangEvent
from gangline.spec.record import Record, StageInfo


class Observer(Protocol):
    """Gets what happens to a run; the default implementation is `SilentObserver`."""

    def run_started(self, record: Record) -> None:
        """The record as created or found; its stages may be done already."""
        ...

    def stage_started(self, name: str) -> None:
        """A stage starts, for the first time or under another driver."""
        ...

    def progress(self, stage: str, event: GangEvent) -> None:
        """State, reason for waiting, rank event or restart of the gang of `stage`."""
        ...

    def stage_ended(self, name: str, info: StageInfo) -> None:
        """`info.message` is the line that the user sees."""
        ...

    def note(self, text: str) -> None:
        """One sentence that belongs to no stage."""
        ...

    def run_ended(self, record: Record) -> None:
        """Last call, with the record as it is then; the run may still be open."""
        ...


class SilentObserver:
    """Ignores every call; base of observers that need only some."""

    def run_started(self, record: Record) -> None: ...

    def stage_started(self, name: str) -> None: ...

    def progress(self, stage: str, event: GangEvent) -> None: ...

    def stage_ended(self, name: str, info: StageInfo) -> None: ...

    def note(self, text: str) -> None: ...

    def run_ended(self, record: Record) -> None: ...


class ObserverRelay:
    """Passes every call on; base of observers that wrap another one."""

    def __init__(self, inner: Observer) -> None:
        self._inner = inner

    def run_started(self, record: Record) -> None:
        self._inner.run_started(record)

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
