"""Summary of a training from the events of rank 0: resumes, traffic, which samples were trained, a federation. Pure.

The generations that led to the final state are followed step by step. A resume drops the steps after its checkpoint:
they are done again, and their samples count once. Steps that rank 0 could not report before it was killed are taken
from another rank.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice, pairwise
from math import inf
from statistics import fmean
from typing import Any

from gangline.errors import IntegrityError
from gangline.line.results.loss_curve import each_line
from gangline.metrics.step_table import finite
from gangline.sanitize import clean
from gangline.spec.codec import from_plain
from gangline.spec.federated import FederationPlan, FederationResult
from gangline.spec.measurements import MatrixUpdates, Samples, StartedFrom, Training

Span = tuple[int, int]
"""Positions in the order of samples: start, stop (exclusive)."""
MOST_SEGMENTS = 100_000
"""Segments of consecutive steps; a resume or another world size starts one."""
MOST_KEY_LETTERS = 400
MOST_KINDS, MOST_LETTERS = 16, 80
"""Kinds of matrices of one rank, and letters of their names."""
MOST_PEER_STEPS = 1_000_000
"""Steps of other ranks that are kept to fill gaps of rank 0."""
Event = Mapping[str, Any]
StepSpans = Mapping[tuple[int, int], Span]
"""Positions of a step's samples, by its generation and number."""
Lines = bytes | Iterable[bytes]
"""Lines of a file of events: one text, or an iterable that can be read several times."""


def read_training(texts: Sequence[Lines], *, peers: Iterable[Lines] = ()) -> Training:
    """Summary of the event files of rank 0, one per gang of the stage in order; `peers` are other ranks of the last."""
    return summarize_training(lambda: map(each_line, texts), peers=map(each_line, peers))


def summarize_training(
    gangs: Callable[[], Iterable[Iterable[Event]]], *, peers: Iterable[Iterable[Event]] = ()
) -> Training:
    """Summary of the training that the gangs of one stage did one after another.

    Args:
        gangs: Returns the events of rank 0 of each gang; may be called several times.
        peers: Events of other ranks of the last gang; only as many are read as needed.
    """
    peer_spans: dict[tuple[int, int], Span] = {}
    training = _summarize(gangs(), peer_spans)
    others = iter(peers)
    while training.samples and training.samples.unknown and (events := next(others, None)) is not None:
        steps = (event for event in events if event.get("event") == "step" and "span" in event)
        for step in islice(steps, MOST_PEER_STEPS - len(peer_spans)):
            peer_spans[step["generation"], step["step"]] = step["span"][0], step["span"][1]
        training = _summarize(gangs(), peer_spans)
    return training


def _summarize(gangs: Iterable[Iterable[Event]], peer_spans: StepSpans) -> Training:
    history = _EventHistory(peer_spans)
    for events in gangs:
        history.next_gang()
        for event in events:
            history.add(event)
    path = history.path
    return Training(
        wire_bytes_per_step=history.wire.per_step,
        resumes=dict(sorted(history.resumes.items())),
        rollbacks=history.rollbacks,
        steps_redone=path.steps_redone,
        started_from=history.started_from,
        matrix_updates=history.matrix_updates,
        samples=replace(path.samples(history.skipped), again=path.samples_redone) if history.has_spans else None,
    )


def count_samples(
    taken: Sequence[Span], skipped: Sequence[Span], unreported: Sequence[Span] = (), *, first: int = 0
) -> Samples:
    """Samples by fate, of all positions from `first` to the last one that was taken or passed without a report."""
    end = max((stop for _, stop in [*taken, *unreported]), default=first)
    left_out = [(start, min(stop, end)) for start, stop in skipped if start < end]
    known = _size(_union([*taken, *left_out]))
    seen = _size(_union([*taken, *left_out, *unreported]))
    return Samples(
        trained=known - _size(_union(left_out)),
        lost=end - first - seen,
        repeated=_size(taken) - _size(_union(taken)),
        skipped=_size(_union(left_out)),
        unknown=seen - known,
    )


@dataclass(slots=True)
class _Segment:
    """Consecutive steps of equal numbers of samples."""

    first: int
    last: int
    start: int
    size: int
    is_reported: bool = True
    """False: no rank reported these steps, so it is unknown whether their samples were trained."""

    @property
    def stop(self) -> int:
        return self.start + (self.last - self.first + 1) * self.size


@dataclass(slots=True)
class _StepPath:
    """Steps that led to the final state and their samples, in memory that does not grow with the number of steps."""

    segments: list[_Segment] = field(default_factory=list)
    begin: tuple[int, int] = (0, 0)
    """Step from which it continues, and the position after it."""
    steps_redone: int = 0
    samples_redone: int = 0

    def samples(self, skipped: Sequence[Span]) -> Samples:
        taken, unreported = (
            [(segment.start, segment.stop) for segment in self.segments if segment.is_reported is reported]
            for reported in (True, False)
        )
        return count_samples(taken, skipped, unreported, first=self.begin[1])

    def add_step(self, step: int, span: Span) -> None:
        last = self.segments[-1] if self.segments else None
        start, size = span[0], span[1] - span[0]
        if last is not None and last.is_reported and (step, start, size) == (last.last + 1, last.stop, last.size):
            last.last = step
        else:
            self.segments.append(_Segment(step, step, start, size))
            if len(self.segments) > MOST_SEGMENTS:
                raise IntegrityError(f"wanted at most {MOST_SEGMENTS} segments of consecutive steps, found more")

    def go_back_to(self, step: int) -> None:
        """Drop the steps after `step`, which are done again."""
        while self.segments and self.segments[-1].last > step:
            last = self.segments[-1]
            steps = last.last - max(step, last.first - 1)
            self.steps_redone += steps
            self.samples_redone += steps * last.size
            if last.first > step:
                self.segments.pop()
            else:
                last.last = step

    def fill_up_to(self, step: int, cursor: int, peer_spans: Mapping[int, Span]) -> None:
        """Add the steps up to `step` that rank 0 did not report: from `peer_spans`, or as one unreported segment.

        `cursor` is the position after `step`.
        """
        last, stop = self._end
        while last < step and last + 1 in peer_spans:
            self.add_step(last + 1, peer_spans[last + 1])
            last, stop = self._end
        if step > last and cursor > stop:
            self.segments.append(_Segment(step, step, stop, cursor - stop, is_reported=False))

    @property
    def _end(self) -> tuple[int, int]:
        """Last step and the position after it."""
        return (self.segments[-1].last, self.segments[-1].stop) if self.segments else self.begin


@dataclass(slots=True)
class _WireBytes:
    """Bytes on the wire and the steps they were sent in; a reported value covers all steps since the last report."""

    total: float = 0.0
    steps: int = 0
    _since: int | None = None

    @property
    def per_step(self) -> float | None:
        return self.total / self.steps if self.steps else None

    def add_step(self, sent: float | None) -> None:
        self._since = 0 if self._since is None else self._since + 1  # counting begins after a process's first step
        if sent is not None:
            self.total, self.steps, self._since = self.total + sent, self.steps + self._since, 0

    def restart(self) -> None:
        self._since = None


@dataclass(slots=True)
class _EventHistory:
    """Accumulates events in the order they were written."""

    peer_spans: StepSpans = field(default_factory=dict)
    """Steps that other ranks of the last gang reported."""
    path: _StepPath = field(default_factory=_StepPath)
    wire: _WireBytes = field(default_factory=_WireBytes)
    skipped: list[Span] = field(default_factory=list)
    resumes: dict[str, int] = field(default_factory=dict)
    rollbacks: int = 0
    started_from: StartedFrom | None = None
    matrix_updates: MatrixUpdates | None = None
    has_spans: bool = False
    _generation: int = -1
    _is_new: bool = False
    """A generation started, and its first step is not known yet."""

    def next_gang(self) -> None:
        self._generation = -1

    def add(self, event: Mapping[str, Any]) -> None:
        if event.get("generation", self._generation) != self._generation:
            self._generation, self._is_new, self.matrix_updates = event["generation"], True, None
        match event.get("event"):
            case "started":
                self.wire.restart()
            case "resumed":
                self._resumed(event)
            case "healed":
                self._resume_at(event, "living")
            case "non_finite" if event.get("answer") in {"skip", "rollback"} and len(self.skipped) < MOST_SEGMENTS:
                self.skipped.append((event["samples"][0], event["samples"][1]))
            case "step" | "round":
                self._step(event)
            case "matrix_updates":
                self.matrix_updates = _matrix_updates(event)

    def _resumed(self, event: Mapping[str, Any]) -> None:
        if self._is_new and event.get("source") == "start":
            self._is_new = False
            self.path.begin = (event["step"], event.get("cursor", 0))
            self.path.go_back_to(event["step"])
            converted = len(event.get("converted", ()))
            self.started_from = StartedFrom(
                checkpoint=str(event.get("checkpoint"))[:MOST_KEY_LETTERS], step=event["step"], converted=converted
            )
        elif self._is_new:
            place = "peer" if event.get("peer_bytes") else "node"
            self._resume_at(event, place if event.get("source") == "copy" else "store")
        else:
            self.rollbacks += 1
            self.path.go_back_to(event["step"])

    def _resume_at(self, event: Mapping[str, Any], source: str) -> None:
        self._is_new = False
        self.resumes[source] = self.resumes.get(source, 0) + 1
        self.path.go_back_to(event["step"])
        earlier = {step: span for (number, step), span in sorted(self.peer_spans.items()) if number < self._generation}
        self.path.fill_up_to(event["step"], event.get("cursor", 0), earlier)

    def _step(self, event: Mapping[str, Any]) -> None:
        if self._is_new:
            self._is_new = False
            self.path.go_back_to(0)  # it found no checkpoint
        self.wire.add_step(event.get("wire_bytes"))
        start, stop = event.get("span", (0, 0))
        self.has_spans = self.has_spans or "span" in event
        self.path.add_step(event["step"], (start, stop))


def _matrix_updates(event: Mapping[str, Any]) -> MatrixUpdates | None:
    """Report of the ranks, with few and short names of kinds; None: it does not have the form of gangline's ranks."""
    try:
        names = [each.name for each in fields(MatrixUpdates)]
        found = from_plain(MatrixUpdates, {name: event[name] for name in names if name in event})
    except IntegrityError:
        return None
    numbers = [found.bound_seconds, found.repeats - 1, *(load for rank in found.ranks for load in rank.loads.values())]
    numbers += [rank.seconds for rank in found.ranks if rank.seconds is not None]
    if found.late is not None:
        numbers += [found.late.buckets, found.late.largest_elements, found.late.outstanding_bytes]
    if not all(0 <= number < inf for number in numbers):
        return None
    ranks = tuple(replace(rank, loads=_few_kinds(rank.loads)) for rank in found.ranks[: MatrixUpdates.MOST_RANKS])
    return replace(found, rule=found.rule[:MOST_LETTERS], ranks=ranks)


def _few_kinds(loads: Mapping[str, float]) -> dict[str, float]:
    """The largest kinds, and the others together: an untrusted model may name each of its parameters differently."""
    largest = sorted(loads, key=lambda name: -loads[name])[:MOST_KINDS]
    found: dict[str, float] = {}
    for name, load in loads.items():
        kind = name[:MOST_LETTERS] if name in largest else "other"
        found[kind] = found.get(kind, 0.0) + load
    return found


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


_MOST_REASONS, _MOST_LETTERS, _MOST_NAMES = 16, 40, 4
_QUARTERS = 4


def read_federation(texts: Sequence[bytes | Iterable[bytes]], plan: FederationPlan, *, rounds: int) -> FederationResult:
    """Summary of the event files of rank 0, one per gang of the stage in order.

    A round that a restart repeated counts once, by its last merge; what was refused and sent counts each time. The last
    events of a lost pod are lost, too: a round is asked once those before it were merged and saved, so the last one
    says how many were.
    """
    answered: dict[int, float] = {}
    merges = lost = up = down = 0
    refused: Counter[str] = Counter()
    spent: list[float] = []
    engines: set[str] = set()
    accountants: set[str] = set()
    for event in (each for text in texts for each in each_line(text) if each.get("event") in ("round", "round_lost")):
        up, down = up + _count(event, "bytes_up"), down + _count(event, "bytes_down")
        refused.update(_refused(event))
        if (epsilon := finite(event.get("epsilon"))) is not None:
            spent.append(epsilon)
            accountants |= _named(event, "accountant")
        engines |= _named(event, "engine")
        if event["event"] == "round_lost":
            lost += 1
        else:
            merges += 1
            answered[_count(event, "round")] = float(_count(event, "answered"))
    merged = min(max(answered, default=0), rounds)
    numbers = [answered[number] for number in sorted(answered)]
    return FederationResult(
        engine="simulated" if plan.simulated else _joined(engines) or "unknown", roster=len(plan.roster),
        answered=_by_quarter(numbers), rounds=rounds, merged=merged, lost=lost, repeated=merges - len(answered),
        refused=dict(sorted(refused.items())[:_MOST_REASONS]), secure_sum=plan.table.secure_sum,
        epsilon=plan.table.epsilon, delta=plan.table.delta if plan.table.epsilon is not None else None,
        spent=max(spent, default=None), accountant=_joined(accountants), bytes_up=up, bytes_down=down,
    )  # fmt: skip


def _refused(event: Mapping[str, Any]) -> dict[str, int]:
    found = event.get("refused")
    if not isinstance(found, dict):
        return {}
    return {str(name)[:_MOST_LETTERS]: count for name, count in found.items() if type(count) is int and count > 0}


def _named(event: Mapping[str, Any], name: str) -> set[str]:
    value = event.get(name)
    return {clean(value, limit=_MOST_LETTERS)} if isinstance(value, str) and value else set()


def _joined(names: set[str]) -> str | None:
    return ", ".join(sorted(names)[:_MOST_NAMES]) or None


def _count(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if type(value) is int and value > 0 else 0


def _by_quarter(numbers: Sequence[float]) -> tuple[float, ...]:
    count = len(numbers)
    cuts = [count * quarter // _QUARTERS for quarter in range(_QUARTERS + 1)]
    parts = [numbers[start:stop] for start, stop in pairwise(cuts)]
    return tuple(round(fmean(part), 2) for part in parts if part)
