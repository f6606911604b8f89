"""TensorBoard: one file of events for each run, which each writer writes from its beginning; no server, no clock.

A new file takes the old one's place once it is as long, so a reader never sees less than before, under a later name,
to which a TensorBoard that is open goes on. Where a training did steps again, a mark ends what came after them.
"""

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.trackers.protocol import Mirrored, Point, TrackedRun, TrackerError, WriterSettings

if TYPE_CHECKING:
    from tensorboardX.record_writer import RecordWriter

NAME = "events.out.tfevents.{:010d}.gangline"
PART = "next.part"
_LARGEST = 3.4028234663852886e38
"""The format holds float32."""


class TensorBoardWriter:
    """Writes one run into its file."""

    def __init__(self, settings: WriterSettings) -> None:
        with without_torch():
            from tensorboardX import summary
            from tensorboardX.proto import event_pb2, summary_pb2

        self._events_pb, self._values, self._text = event_pb2, summary_pb2, summary.text
        self._top = Path(settings.path)
        self._file: RecordWriter | None = None
        self._folder = self._top
        self._last_step: int | None = None

    def begin(self, run: TrackedRun) -> None:
        """Begin a new file next to the one there is."""
        from tensorboardX.record_writer import RecordWriter

        self._folder, self._last_step = self._folder_of(run), None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / PART).unlink(missing_ok=True)
            self._file = RecordWriter(str(self._folder / PART))
        except OSError as error:
            raise TrackerError(f"wanted to write {self._folder}, found: {error.strerror}; make room there") from error
        self._add(wall_time=run.started_ms / 1000, file_version="brain.Event:2")
        self._describe("parameters", run.parameters, run.started_ms)

    def write(self, points: Sequence[Point]) -> None:
        """Append points; a step that is done again ends what came after it."""
        for point in points:
            if self._last_step is not None and point.step < self._last_step:
                mark = self._events_pb.SessionLog(status=self._events_pb.SessionLog.START)
                self._add(wall_time=point.time_ms / 1000, step=point.step, session_log=mark)
            self._last_step = point.step
            if abs(point.value) <= _LARGEST:
                value = self._values.Summary.Value(tag=point.metric, simple_value=point.value)
                self._add(wall_time=point.time_ms / 1000, step=point.step, summary=self._values.Summary(value=[value]))
        self._flush(is_whole=False)

    def finish(self, run: TrackedRun) -> None:
        """Add what the record says at its end; the file is whole then."""
        self._describe("run", run.tags, run.ended_ms or run.started_ms)
        self._flush(is_whole=True)

    def look(self, run: TrackedRun) -> Mirrored | None:
        """Last step and time of the file."""
        place = _newest(self._folder_of(run))
        if place is None:
            return None
        step, seconds = -1, 0.0
        for event in self._events(place):
            if any(value.HasField("simple_value") for value in event.summary.value):
                step, seconds = max(step, event.step), max(seconds, event.wall_time)
        return Mirrored(
            place=str(place.parent), step=step if step >= 0 else None, time_ms=round(1000 * seconds),
            size_bytes=place.stat().st_size,
        )  # fmt: skip

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _folder_of(self, run: TrackedRun) -> Path:
        """`EXPERIMENT/RUN`; each part of a name is a folder, and none leads up."""
        parts = [re.sub(r"[^\w.-]+|^\.+", "-", part) for part in (*run.experiment.split("/"), run.id) if part]
        return self._top.joinpath(*parts)

    def _describe(self, name: str, texts: dict[str, str], time_ms: int) -> None:
        lines = "\n".join(f"    {key} = {text}" for key, text in texts.items())
        self._add(wall_time=time_ms / 1000, step=0, summary=self._text(name, lines))

    def _add(self, **fields: Any) -> None:
        assert self._file is not None
        self._file.write(self._events_pb.Event(**fields).SerializeToString())

    def _flush(self, *, is_whole: bool) -> None:
        assert self._file is not None
        self._file.flush()
        part, before = self._folder / PART, _newest(self._folder)
        if part.exists() and (is_whole or before is None or part.stat().st_size >= before.stat().st_size):
            number = 0 if before is None else int(before.name.split(".")[3]) + 1
            part.rename(self._folder / NAME.format(number))
            if before is not None:
                before.unlink()

    def _events(self, place: Path) -> Iterator[Any]:
        with place.open("rb") as file:
            while len(head := file.read(12)) == 12:
                (size,) = struct.unpack("<Q", head[:8])
                data = file.read(size + 4)
                if len(data) == size + 4:
                    yield self._events_pb.Event.FromString(data[:-4])


def _newest(folder: Path) -> Path | None:
    return max(folder.glob(NAME.format(0).replace("0" * 10, "*")), default=None)


@contextmanager
def without_torch() -> Iterator[None]:
    """While the block imports tensorboardX, which would import torch for drawings of models: 12 of its 13 seconds."""
    is_absent = "torch" not in sys.modules
    if is_absent:
        sys.modules["torch"] = None  # type: ignore[assignment]  # an import of it fails at once
    try:
        yield
    finally:
        if is_absent:
            del sys.modules["torch"]


def open_writer(settings: WriterSettings) -> TensorBoardWriter:
    """Raises ImportError if tensorboardX is not installed."""
    return TensorBoardWriter(settings)
