"""Plain lines for build logs, pipes and NO_COLOR: one an event, progress at most once in ten seconds, news at once."""

import time
from collections.abc import Callable
from typing import Self

from gangline.cli.terminal import say
from gangline.cli.view.summary_lines import NAME_WIDTH, found_line, stage_line, verdict_lines
from gangline.launch.protocol import GangEvent
from gangline.report.progress import StageOutlook, StageProgress
from gangline.report.text import clean
from gangline.spec.record import Record, StageInfo

SECONDS_BETWEEN = 10.0
WIDTH = 118


class PlainView:
    """An observer of `gangline.line` that prints."""

    def __init__(self, echo: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic) -> None:
        self._echo = echo
        self._clock = clock
        self._progress = StageProgress("")
        self._said = ""
        self._next = 0.0
        self._outlook = StageOutlook()
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

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
