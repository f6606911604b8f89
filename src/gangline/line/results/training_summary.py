"""Summary of a training from the events of rank 0: resumes, traffic, what became of its samples. Pure.

The sequence of generations that led to the final state is followed step by step. Steps that a resume goes back behind
are off that sequence: they are done again, and their samples count once. Steps that rank 0 could not report before it
was killed are taken from any rank that did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from gangline.errors import IntegrityError
from gangline.line.results.loss_curve import each_line
from gangline.spec.measurements import Samples, Training

Span = tuple[int, int]
"""Positions in the order of samples: from, up to but not including."""


MOST_STRETCHES = 100_000
"""Of steps that follow each other; a resume or another world size begins one."""
MOST_TOLD = 1_000_000
"""Steps of peers, kept to fill in for rank 0."""
Event = Mapping[str, Any]
Told = Mapping[tuple[int, int], Span]
"""Positions that a step took, by its generation and number."""


Lines = bytes | Iterable[bytes]
"""Of a file of events: as one text, or as what gives them each time it is asked."""


def read_training(texts: Sequence[Lines], *, peers: Iterable[Lines] = ()) -> Training:
    """Events of rank 0 as each gang of the stage left them, in order; of `peers`, other ranks of the last one."""
    return follow(lambda: map(each_line, texts), peers=map(each_line, peers))


def follow(gangs: Callable[[], Iterable[Iterable[Event]]], *, peers: Iterable[Iterable[Event]] = ()) -> Training:
    """The training that gangs of one stage did one after another.

    Args:
        gangs: Gives the events of rank 0 of each, as often as it is asked.
        peers: Events of other ranks of the last gang, each; as many are read as are needed.
    """
    told: dict[tuple[int, int], Span] = {}
    found = _follow(gangs(), told)
    others = iter(peers)
    while found.samples and found.samples.unknown and (events := next(others, None)) is not None:
        steps = (each for each in events if each.get("event") == "step" and "span" in each)
        for each in islice(steps, MOST_TOLD - len(told)):
            told[each["generation"], each["step"]] = each["span"][0], each["span"][1]
        found = _follow(gangs(), told)
    return found


def _follow(gangs: Iterable[Iterable[Event]], told: Told) -> Training:
    history = _History(told)
    for events in gangs:
        history.next_gang()
        for event in events:
            history.see(event)
    way = history.way
    return Training(
        wire_bytes_per_step=history.wire.per_step,
        resumes=dict(sorted(history.resumes.items())),
        rollbacks=history.rollbacks,
        steps_redone=way.steps_redone,
        samples=replace(way.fate(history.skipped), again=way.samples_redone) if history.has_spans else None,
    )


def count(taken: Sequence[Span], skipped: Sequence[Span], untold: Sequence[Span] = ()) -> Samples:
    """What became of the positions from 0 up to the last one that was taken, or passed with nobody to tell of it."""
    end = max((stop for _, stop in [*taken, *untold]), default=0)
    left_out = [(start, min(stop, end)) for start, stop in skipped if start < end]
    known = _size(_union([*taken, *left_out]))
    seen = _size(_union([*taken, *left_out, *untold]))
    return Samples(
        trained=known - _size(_union(left_out)),
        lost=end - seen,
        repeated=_size(taken) - _size(_union(taken)),
        skipped=_size(_union(left_out)),
        unknown=seen - known,
    )


@dataclass(slots=True)
class _Stretch:
    """Steps in a row, each over as many positions as the others."""

    first: int
    last: int
    start: int
    size: int
    is_told: bool = True
    """A rank told of it; else its samples are what was passed, and nobody knows whether they were taken."""

    @property
    def stop(self) -> int:
        return self.start + (self.last - self.first + 1) * self.size


@dataclass(slots=True)
class _Way:
    """Steps on the way to the final state and the positions they took, in little memory however many there are."""

    stretches: list[_Stretch] = field(default_factory=list)
    steps_redone: int = 0
    samples_redone: int = 0

    def fate(self, skipped: Sequence[Span]) -> Samples:
        taken, untold = ([(e.start, e.stop) for e in self.stretches if e.is_told is told] for told in (True, False))
        return count(taken, skipped, untold)

    def go(self, step: int, span: Span) -> None:
        last = self.stretches[-1] if self.stretches else None
        start, size = span[0], span[1] - span[0]
        if last is not None and last.is_told and (step, start, size) == (last.last + 1, last.stop, last.size):
            last.last = step
        else:
            self.stretches.append(_Stretch(step, step, start, size))
            if len(self.stretches) > MOST_STRETCHES:
                raise IntegrityError(f"wanted steps in at most {MOST_STRETCHES} stretches of one size, found more")

    def back_to(self, step: int) -> None:
        """What is after `step` will be done again."""
        while self.stretches and self.stretches[-1].last > step:
            last = self.stretches[-1]
            steps = last.last - max(step, last.first - 1)
            self.steps_redone += steps
            self.samples_redone += steps * last.size
            if last.first > step:
                self.stretches.pop()
            else:
                last.last = step

    def go_untold(self, step: int, cursor: int, told: Mapping[int, Span]) -> None:
        """Training stands after `step`, where `cursor` is next: steps up to there were done, as peers told or nobody.

        `told`: What peers said of steps before.
        """
        last, stop = self._end
        while last < step and last + 1 in told:
            self.go(last + 1, told[last + 1])
            last, stop = self._end
        if step > last and cursor > stop:
            self.stretches.append(_Stretch(step, step, stop, cursor - stop, is_told=False))

    @property
    def _end(self) -> tuple[int, int]:
        """Last step and the position after it."""
        return (self.stretches[-1].last, self.stretches[-1].stop) if self.stretches else (0, 0)


@dataclass(slots=True)
class _Wire:
    """Bytes on the wire and the steps they were sent in: what is told with a step covers all since it was told last."""

    total: float = 0.0
    steps: int = 0
    _since: int | None = None

    @property
    def per_step(self) -> float | None:
        return self.total / self.steps if self.steps else None

    def step(self, sent: float | None) -> None:
        self._since = 0 if self._since is None else self._since + 1  # counting begins after a process's first step
        if sent is not None:
            self.total, self.steps, self._since = self.total + sent, self.steps + self._since, 0

    def begin_anew(self) -> None:
        self._since = None


@dataclass(slots=True)
class _History:
    """Folds events in, in the order they were written."""

    told: Told = field(default_factory=dict)
    """What peers of the last gang said."""
    way: _Way = field(default_factory=_Way)
    wire: _Wire = field(default_factory=_Wire)
    skipped: list[Span] = field(default_factory=list)
    resumes: dict[str, int] = field(default_factory=dict)
    rollbacks: int = 0
    has_spans: bool = False
    _generation: int = -1
    _is_new: bool = False
    """A generation began, and has not said yet where."""

    def next_gang(self) -> None:
        self._generation = -1

    def see(self, event: Mapping[str, Any]) -> None:
        if event.get("generation", self._generation) != self._generation:
            self._generation, self._is_new = event["generation"], True
        match event.get("event"):
            case "started":
                self.wire.begin_anew()
            case "resumed":
                self._resumed(event)
            case "healed":
                self._began_at(event, "living")
            case "non_finite" if event.get("answer") in {"skip", "rollback"} and len(self.skipped) < MOST_STRETCHES:
                self.skipped.append((event["samples"][0], event["samples"][1]))
            case "step":
                self._step(event)

    def _resumed(self, event: Mapping[str, Any]) -> None:
        if self._is_new:
            place = "peer" if event.get("peer_bytes") else "node"
            self._began_at(event, place if event.get("source") == "copy" else "store")
        else:
            self.rollbacks += 1
            self.way.back_to(event["step"])

    def _began_at(self, event: Mapping[str, Any], source: str) -> None:
        self._is_new = False
        self.resumes[source] = self.resumes.get(source, 0) + 1
        self.way.back_to(event["step"])
        before = {step: span for (number, step), span in sorted(self.told.items()) if number < self._generation}
        self.way.go_untold(event["step"], event.get("cursor", 0), before)

    def _step(self, event: Mapping[str, Any]) -> None:
        if self._is_new:
            self._is_new = False
            self.way.back_to(0)  # it found nothing to go on from
        self.wire.step(event.get("wire_bytes"))
        start, stop = event.get("span", (0, 0))
        self.has_spans = self.has_spans or "span" in event
        self.way.go(event["step"], (start, stop))


def _union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _size(spans: Iterable[Span]) -> int:
    return sum(stop - start for start, stop in spans)
