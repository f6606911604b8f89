"""Views of a run: the protocol, the choice between live screen, plain lines and JSON lines, and the run under a view.

All of them end with the same summary: a line per ended stage, then the verdict and the next steps. On failure, Ctrl-C
or SIGTERM the view is closed, and the user reads how to resume or cancel the run. The live screen is in `live`: rich
takes long to import.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import typer

from gangline.cli.terminal import is_plain, say
from gangline.errors import GanglineError
from gangline.launch.protocol import GangEvent
from gangline.line.record.observer import Observer
from gangline.line.run.sigterm import exit_on_sigterm
from gangline.report.diagnoses import diagnosis_text
from gangline.report.facts import headline, stages_in_order, total_seconds, verdict_reason, verdict_word
from gangline.report.next_commands import next_steps
from gangline.report.progress import StageOutlook, StageProgress
from gangline.report.text import clean, quantity
from gangline.sanitize import sanitized, to_json
from gangline.spec.codec import to_plain
from gangline.spec.record import STAGES, Record, StageInfo
from gangline.units import format_seconds

NAME_WIDTH = 10


class RunView(Observer, Protocol):
    """An observer that may hold the screen, as a context manager, and remembers what was reported to it."""

    @property
    def run_id(self) -> str | None:
        """Id of the run, once it is known."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the end of the run, with the reason of a failure, was shown."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def choose_view(*, json: bool) -> RunView:
    """NO_COLOR, TERM=dumb or an output that is no terminal give plain lines."""
    if json:
        return JsonView()
    if is_plain(sys.stdout):
        return PlainView()
    from gangline.cli.view.live import LiveView

    return LiveView()


@contextmanager
def attended_view(view: RunView, *, drives: bool = True) -> Iterator[RunView]:
    """Hold the screen while the block runs, with retries as notes; a failure whose reason was shown is printed once.

    Args:
        view: The screen.
        drives: Whether the run waits for a driver once this one has left, or was only watched.
    """
    from gangline.cli.log_setup import retries_as_notes  # structlog, which a command without a run never needs

    try:
        with exit_on_sigterm(), view, retries_as_notes(view.note):
            yield view
    except GanglineError as error:
        if not view.ended:
            raise
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt:
        _say_where(view, drives=drives)
        raise
    except SystemExit:
        _say_where(view, drives=drives)
        raise


def _say_where(view: RunView, *, drives: bool) -> None:
    if view.run_id:
        again = f"gangline run resumes {view.run_id}" if drives else f"gangline follow {view.run_id}"
        said = f"still running: {again} · stop it: gangline cancel {view.run_id}"
        say(said, err=True)


SECONDS_BETWEEN = 10.0
WIDTH = 118


class _LineView:
    """A view that prints lines, and so holds no screen."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""


class PlainView(_LineView):
    """An observer of `gangline.line` that prints."""

    def __init__(self, echo: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(echo)
        self._clock = clock
        self._progress = StageProgress("")
        self._said = ""
        self._next = 0.0
        self._outlook = StageOutlook()

    @property
    def run_id(self) -> str | None:
        return self._outlook.run_id

    def run_started(self, record: Record) -> None:
        self._outlook.learn(record)
        if found := found_line(record):
            self._echo(found)

    def stage_started(self, name: str) -> None:
        self._progress = self._outlook.begin(name)
        self._next = self._clock() + SECONDS_BETWEEN / 4

    def progress(self, stage: str, event: GangEvent) -> None:
        situation, members = self._progress.situation, self._progress.members
        self._progress.see(event)
        sentence = self._progress.sentence()
        now = self._clock()
        # a gang that waits no more may say nothing for hours
        is_news = (situation, members) != (self._progress.situation, self._progress.members)
        if not sentence or sentence == self._said or (now < self._next and not is_news):
            return
        self._said, self._next = sentence, now + SECONDS_BETWEEN
        self._echo(f"{stage:<{NAME_WIDTH}}{sentence}")

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._outlook.stage_ended(name, info)
        self._echo(stage_line(name, info, WIDTH))

    def note(self, text: str) -> None:
        self._echo(f"{'note':<{NAME_WIDTH}}{clean(text)}")

    def run_ended(self, record: Record) -> None:
        self.ended = record.run.state == "ended"
        for line in verdict_lines(record):
            self._echo(line)


class JsonView(_LineView):
    """An observer of `gangline.line` for programs."""

    def __init__(self, echo: Callable[[str], None] = say) -> None:
        super().__init__(echo)
        self.run_id: str | None = None

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


def found_line(record: Record) -> str:
    """Stages that a resumed run has done already; empty for a new one."""
    record = sanitized(record)
    done = [name for name, info in stages_in_order(record) if info.ended and info.state != "cancelled"]
    if not done:
        return ""
    said = "all stages are" if len(done) == len(STAGES) else f"{', '.join(done)} {'is' if len(done) == 1 else 'are'}"
    return f"{'found':<{NAME_WIDTH}}{record.run.id}: {said} done"


def stage_line(name: str, info: StageInfo, width: int, *, cut: bool = False) -> str:
    """`train     ddp-2 120/120 … 15 s`, the time at the right end of `width` columns; longer ones are cut or run on."""
    mark = {"failed": "✗ ", "cancelled": "■ ", "skipped": "– "}.get(info.state, "")
    text = f"{name:<{NAME_WIDTH}}{mark}{clean(info.message or info.state)}"
    spent = format_seconds(info.seconds) if info.seconds is not None and info.state != "skipped" else ""
    room = max(width - len(spent) - 1, 40)
    if cut and len(text) > room:
        text = text[: room - 1] + "…"
    return f"{text:<{room}} {spent}".rstrip()


def verdict_lines(record: Record) -> list[str]:
    """Verdict, time, and the metric of a run that passed or the reason of another; gates that could not judge; next.

    That samples came too slowly is named here, too, for a key of the line mends it.
    """
    record = sanitized(record)
    passed = record.run.verdict == "passed"
    result = _metric(record) if passed else clean(verdict_reason(record))
    first = [verdict_word(record).upper(), format_seconds(total_seconds(record)), *([result] if result else [])]
    unjudged = [gate for gate in record.gates if passed and gate.verdict == "unknown"]
    rest = [f"not judged: {clean(gate.name, 40)}, {clean(gate.reason)}" for gate in unjudged]
    rest += [
        diagnosis_text(diagnosis)
        for diagnosis in record.diagnoses
        if diagnosis.kind == "bound" and "data" in diagnosis.names
    ]
    rest.append(f"next: {' · '.join(next_steps(record))}")
    return [" · ".join(first), *(f"{'':<{NAME_WIDTH}}{each}" for each in rest)]


def _metric(record: Record) -> str:
    """`eval_loss 3.037 nats`; empty without any metric."""
    judged = headline(record)
    return f"{clean(judged.name, 60)} {quantity(judged.metric.value, judged.metric.unit)}" if judged else ""
