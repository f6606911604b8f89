"""The live screen of a terminal: ended stages stay as lines, the running one moves at its foot.

A spinner and the elapsed time move four times a second by rich's own thread, also while the gang sends no event.
"""

import threading
import time
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gangline.cli.view.run_view import NAME_WIDTH, found_line, stage_line, verdict_lines
from gangline.launch.protocol import GangEvent
from gangline.line.results.bound import bound_text, find_bound
from gangline.report.progress import StageOutlook, StageProgress
from gangline.report.text import clean
from gangline.sanitize import visible
from gangline.spec.record import Record, StageInfo
from gangline.units import format_seconds

STYLES = {"failed": "bold red", "cancelled": "yellow", "taken": "cyan", "skipped": "dim"}
VERDICTS = {"passed": "bold green", "refused": "bold red", "failed": "bold red"}
PHASES = {
    "forward": "green", "backward": "green", "optimizer": "green", "data": "yellow", "wait": "cyan", "bubble": "blue",
    "checkpoint": "magenta", "other": "white",
}  # fmt: skip
WORDS = {"compute": ("forward", "backward", "optimizer"), "wait": ("wait",), "bubble": ("bubble",), "data": ("data",)}
BAR = 24
SPARK, ROOM_FOR_SPARK = 12, 100
"""Width of the loss curve, and of a terminal that has room for it next to the remaining time."""


class LiveView:
    """An observer of `gangline.line` that draws; a context manager, as it holds the screen."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._foot = _Foot()
        self._live = Live(self._foot, console=self._console, refresh_per_second=4, transient=True)
        self._outlook = StageOutlook()
        self.ended = False

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._foot.progress = None
        self._live.stop()

    @property
    def run_id(self) -> str | None:
        return self._outlook.run_id

    def run_started(self, record: Record) -> None:
        self._outlook.learn(record)
        if found := found_line(record):
            self._console.print(_text(found, style="dim"))

    def stage_started(self, name: str) -> None:
        self._foot.begin(self._outlook.begin(name))

    def progress(self, stage: str, event: GangEvent) -> None:
        if self._foot.progress is None or self._foot.progress.stage != stage:
            self._foot.begin(self._outlook.begin(stage))
        self._foot.see(event)

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._foot.progress = None
        self._outlook.stage_ended(name, info)
        text = _text(
            stage_line(name, info, min(self._console.width, 140), cut=name != "report"),
            style=STYLES.get(info.state, ""),
        )
        if info.state not in STYLES:
            text.stylize("bold", 0, len(name))
        self._console.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(_text(f"{'note':<{NAME_WIDTH}}{clean(text)}", style="yellow"))

    def run_ended(self, record: Record) -> None:
        self.ended = record.run.state == "ended"
        self._foot.progress = None
        style = VERDICTS.get(record.run.verdict or "", "bold yellow")
        first, *rest = map(_text, verdict_lines(record))
        first.stylize(style, 0, first.plain.index(" "))
        for text in (first, *rest):
            self._console.print(text)


def _text(said: str, style: str = "") -> Text:
    """Text of a record or gang without markup and terminal control codes."""
    return Text(visible(said), style=style)


class _Foot:
    """The moving part: redrawn at each refresh by rich's thread from the progress of the running stage."""

    def __init__(self) -> None:
        self.progress: StageProgress | None = None
        self._lock = threading.Lock()
        self._since = 0.0
        self._spinner = Spinner("dots", style="cyan")

    def begin(self, progress: StageProgress) -> None:
        self.progress, self._since = progress, time.monotonic()

    def see(self, event: GangEvent) -> None:
        assert self.progress is not None
        with self._lock:
            self.progress.see(event)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        progress = self.progress
        if progress is None:
            return
        spark = SPARK if options.max_width >= ROOM_FOR_SPARK else 0  # what is left to wait for matters more
        with self._lock:
            sentence, rows = progress.sentence(spark=spark) or "working", progress.slowest_first()
            recent = [phases.shares() for phases in progress.ranks.values()]
        elapsed = format_seconds(time.monotonic() - self._since)
        line = Table.grid(expand=True)
        line.add_column(width=NAME_WIDTH, no_wrap=True)
        line.add_column(width=2)
        line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        line.add_column(justify="right", no_wrap=True)
        line.add_row(Text(progress.stage, style="bold"), self._spinner, _text(sentence), Text(elapsed, style="dim"))
        yield line
        for rank, shares in rows:
            yield rank_line(rank, shares)
        if bound := find_bound(recent):
            yield Text(f"{'':<{NAME_WIDTH}}  bound by {bound[0]}: {bound_text(*bound)}", style="dim")


def rank_line(rank: int, shares: dict[str, float]) -> Text:
    """`rank 0    ████████████ compute 89 % wait 9 data 2`."""
    text = Text(f"{'':<{NAME_WIDTH}}  rank {rank:<3} ")
    drawn = 0
    for phase, style in PHASES.items():
        cells = round(shares.get(phase, 0.0) * BAR)
        cells = min(cells, BAR - drawn)
        text.append("█" * cells, style=style)
        drawn += cells
    text.append("░" * (BAR - drawn), style="dim")
    said = ((word, sum(shares.get(phase, 0.0) for phase in phases)) for word, phases in WORDS.items())
    words = " ".join(
        f"{word} {share * 100:.0f}{' %' if word == 'compute' else ''}"
        for word, share in said
        if share or word != "bubble"
    )
    text.append(f" {words}", style="dim")
    return text
