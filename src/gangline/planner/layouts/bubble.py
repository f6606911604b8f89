"""Pipeline bubbles: one step of a schedule, played with given durations; closed forms for rounds of equal stages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gangline.errors import ConfigError
from gangline.planner.layouts.schedules import Action, Step, num_stages, orders, owner_of, per_round
from gangline.spec.plan import SCHEDULE_NAMES, PipelineSchedule


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step of a pipeline."""

    seconds: float
    """Time from the first forward to the last backward."""
    busy: tuple[float, ...]
    """Seconds that each rank computed."""
    live: tuple[float, ...]
    """Most micro-batches whose activations each rank holds at once; half a one is one of its two stages."""

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they have nothing to do."""
        return 1 - sum(self.busy) / (len(self.busy) * self.seconds)


@lru_cache(maxsize=4096)
def bubble(
    schedule: PipelineSchedule, ranks: int, micro_batches: int, *, weights: tuple[float, ...] = (), overlap: bool = True
) -> Timeline:
    """Play one step of `schedule`; forward and both halves of backward of the first stage take one second each.

    Args:
        schedule: The order of each rank's actions.
        ranks: Of the pipeline, each with one stage or two.
        micro_batches: Of one step.
        weights: Cost of each stage, of which their ratios count; empty: all stages cost alike.
        overlap: A forward and a backward that a schedule joins are one action, whose results leave at its end, as
            torch's runtime sends them; else they run, and leave, one after the other.

    Raises:
        ConfigError: The schedule does not work with these numbers.
    """
    require_schedule(schedule, ranks, micro_batches)
    return _Play(schedule, ranks, micro_batches, weights, overlap).run()


def require_schedule(
    schedule: PipelineSchedule, ranks: int, micro_batches: int, *, share: int | None = None, key: str = "train.mesh"
) -> None:
    """Refuse micro-batches of one data-parallel rank that `schedule` cannot take, naming numbers that work; also sizes,
    where `share`, the samples of that rank in a step, is known.

    Raises:
        ConfigError: With what works.
    """
    if accepts_micro_batches(schedule, ranks, micro_batches):
        return
    rule = {
        "1f1b": f"as many micro-batches as stages, {ranks}, or more",
        "dualpipev": f"as many micro-batches as stages, {2 * ranks}, or more",
    }.get(schedule, f"micro-batches in equal rounds, as {ranks} or {2 * ranks}")
    raise ConfigError(
        f'{key}.pp_schedule: "{schedule}" on {ranks} ranks wants {rule}; found {micro_batches}'
        f"; {_what_works(schedule, ranks, micro_batches, share)}"
    )


def accepts_micro_batches(schedule: PipelineSchedule, ranks: int, micro_batches: int) -> bool:
    """Can `schedule` run that many micro-batches?"""
    if schedule in ("interleaved_1f1b", "interleaved_zero_bubble"):
        return micro_batches > 0 and micro_batches % per_round(ranks, micro_batches) == 0
    return micro_batches >= {"1f1b": ranks, "dualpipev": 2 * ranks}.get(schedule, 1)


def runnable_schedules(
    ranks: int, micro_batches: int, *, blocks: int | None = None, among: Sequence[PipelineSchedule] = SCHEDULE_NAMES
) -> list[PipelineSchedule]:
    """Schedules `among` those given that take these numbers, in their order, by default the simplest first; without
    knowing the blocks, those with one stage a rank."""
    most = ranks if blocks is None else blocks
    return [
        each for each in among if num_stages(each, ranks) <= most and accepts_micro_batches(each, ranks, micro_batches)
    ]


def _what_works(schedule: PipelineSchedule, ranks: int, micro_batches: int, share: int | None) -> str:
    others = ", ".join(
        f'"{runnable_schedule}"' for runnable_schedule in runnable_schedules(ranks, micro_batches, blocks=2 * ranks)
    )
    sizes = [
        size
        for size in range(1, (share or 0) + 1)
        if share and share % size == 0 and accepts_micro_batches(schedule, ranks, share // size)
    ]
    if not sizes:
        return f"{others} work, or a larger global_batch"
    return f"micro_batch {' or '.join(map(str, sizes[-2:]))} works, or {others}"


def bubble_share(schedule: PipelineSchedule, ranks: int, micro_batches: int) -> float:
    """Share of the time in which a rank waits, where stages are alike and forward and both halves of backward, too.

    Source:
        Closed forms of each order; `bubble` gives the same, and tests compare them.
    """
    idle, count = ranks - 1, micro_batches
    work = {
        "gpipe": count, "1f1b": count, "interleaved_1f1b": 2 * count, "looped_bfs": 2 * count,
        "interleaved_zero_bubble": 6 * count, "zbv": 6 * count, "dualpipev": 3 * count,
    }[schedule]  # fmt: skip
    return idle / (work + idle)


def most_live(schedule: PipelineSchedule, ranks: int, rank: int, micro_batches: int) -> float:
    """Most that `rank` keeps the activations of; half a one is one of its two stages.

    Source:
        Counted in the play of each order by `bubble`, which tests repeat.
    """
    if ranks == 1:
        return 1.0
    live = {
        "1f1b": ranks - rank,
        "interleaved_1f1b": (2 * (ranks - 1 - rank) + ranks + 1) / 2,
        "interleaved_zero_bubble": ranks,
        "zbv": ranks,
        "dualpipev": ranks + 0.5,
    }
    return float(min(micro_batches, live.get(schedule, micro_batches)))


def has_closed_form(ranks: int, micro_batches: int) -> bool:
    """Whether both are exact: micro-batches come in whole rounds, and enough of them to fill a pipeline."""
    return micro_batches % ranks == 0 and micro_batches >= 2 * ranks


class _Play:
    """Ranks take their steps in order, each as soon as it can."""

    def __init__(
        self, schedule: PipelineSchedule, ranks: int, micro_batches: int, weights: Sequence[float], overlap: bool
    ) -> None:
        steps = orders(schedule, ranks, micro_batches)
        self._steps: list[list[Step]] = (
            steps if overlap else [[(action,) for step in one for action in step] for one in steps]
        )
        self._owner = [owner_of(schedule, ranks, stage) for stage in range(num_stages(schedule, ranks))]
        self._weights, self._stages_per_rank = weights, len(self._owner) // ranks
        self._done: dict[Action, float] = {}
        self._clock, self._busy = [0.0] * ranks, [0.0] * ranks
        self._held, self._most = [0] * ranks, [0] * ranks

    def run(self) -> Timeline:
        places = [0] * len(self._steps)
        moved = True
        while moved:
            moved = False
            for rank, steps in enumerate(self._steps):
                while places[rank] < len(steps) and (start := self._start(rank, steps[places[rank]])) is not None:
                    self._take(rank, steps[places[rank]], start)
                    places[rank] += 1
                    moved = True
        assert all(place == len(steps) for place, steps in zip(places, self._steps, strict=True)), (
            "no order waits in a ring"
        )
        return Timeline(max(self._clock), tuple(self._busy), tuple(each / self._stages_per_rank for each in self._most))

    def _start(self, rank: int, step: Step) -> float | None:
        """When `step` can begin; None: what it needs is not done yet."""
        ready = self._clock[rank]
        for action in step:
            for needed in self._needs(action):
                done = next((self._done[each] for each in needed if each in self._done), None)
                if done is None:
                    return None
                ready = max(ready, done)
        return ready

    def _needs(self, action: Action) -> Iterator[Sequence[Action]]:
        """Each a choice of actions that give the same."""
        kind, stage, micro_batch = action
        if kind == "F":
            if stage:
                yield [Action("F", stage - 1, micro_batch)]
        elif kind == "W":
            yield [Action("I", stage, micro_batch)]
        else:
            yield [Action("F", stage, micro_batch)]
            if stage + 1 < len(self._owner):
                yield [Action("B", stage + 1, micro_batch), Action("I", stage + 1, micro_batch)]

    def _take(self, rank: int, step: Step, start: float) -> None:
        seconds = sum(self._seconds(action) for action in step)
        self._clock[rank] = start + seconds
        self._busy[rank] += seconds
        for action in step:
            self._done[action] = start + seconds
            self._held[rank] += (action.kind == "F") - (action.kind in "BW")
            self._most[rank] = max(self._most[rank], self._held[rank])

    def _seconds(self, action: Action) -> float:
        weight = self._weights[action.stage] / self._weights[0] if self._weights else 1.0
        return weight * (2.0 if action.kind == "B" else 1.0)
