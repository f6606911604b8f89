"""Layouts whose replicas run on two kinds of GPU: whole passes are dealt so that the last replica is first done. Pure.

A replica lies on GPUs of one kind. What it takes is what it would take if all replicas were of its kind and had its
passes, with messages between servers at the rate of the slower kind.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Generic, TypeVar

from gangline.fabric.reliability.shares import deal_passes, even_shares
from gangline.planner.contest import SearchSummary
from gangline.planner.formula.evaluate import LayoutCandidates, LayoutPlan, only_plan
from gangline.planner.formula.inputs import Question, formula_profile
from gangline.planner.formula.memory import Stages, held_sync, stages_of
from gangline.planner.formula.step_time import StepParts, step_flops
from gangline.planner.layouts.enumerate import Sync, layouts
from gangline.planner.layouts.layout import Layout, WrappedLayout
from gangline.planner.settings import Setting
from gangline.spec.forecast import Forecast
from gangline.spec.plan import PipelineSchedule

SCHEDULE: PipelineSchedule = "1f1b"
"""Schedule of gangs without stages: theirs have a fixed number of micro-batches."""


Questions = tuple[Question, Question]
"""What is asked of each kind, as if all ranks of the gang were of it."""


KindT = TypeVar("KindT", LayoutPlan, Forecast)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlikeGang(Generic[KindT]):
    """The best way to run one layout on two kinds."""

    layout: Layout
    setting: Setting
    shares: tuple[int, ...]
    """Samples of a step by replica, those of the first kind before those of the second."""
    kinds: tuple[KindT, KindT]
    """Plan or forecast of a gang of each kind alone in which all replicas take what the busiest one of it takes."""

    @property
    def step_seconds(self) -> float:
        """Time until the last replica is done; 0: not known."""
        return max(kind.step_seconds or 0.0 for kind in self.kinds)


def evaluate_unlike(
    questions: Questions, ranks: tuple[int, int], *, band: float = 0.0
) -> tuple[list[UnlikeGang[LayoutPlan]], SearchSummary]:
    """Weigh every layout with replicas that lies on both kinds, but for those that even their bound makes lose; if none
    fits, the nearest miss is the only plan.

    `ranks` of the gang are of each kind. The bound of a layout: all replicas are done at once, nothing is exchanged,
    updated or computed again.
    """
    seen: tuple[dict[object, StepParts], ...] = ({}, {})
    ways = [
        way for layout in _layouts(questions[0], ranks) if (way := _Ways(questions, ranks, layout, seen)).num_candidates
    ]
    found: list[_Found] = []
    best = inf
    for way in sorted(ways, key=lambda each: each.bound_seconds):
        if way.bound_seconds > best * (1 + band):
            break
        own = way.best()
        found += [own] if own else []
        best = min(best, own.order[1]) if own and not own.order[0] else best
    found.sort(key=lambda each: each.order)
    speed = sum(own * question.hardware.flops_per_second for own, question in zip(ranks, questions, strict=True))
    fitting = [each for each in found if not each.order[0]] or found[:1]
    return [each.plan(questions, ranks) for each in fitting], SearchSummary(
        num_candidates=sum(each.num_candidates for each in ways),
        num_weighed=sum(each.num_weighed for each in ways),
        num_fit=sum(each.num_fit for each in ways),
        bound_seconds=step_flops(questions[0].model, questions[0].space.global_batch) / speed,
    )


def _layouts(question: Question, ranks: tuple[int, int]) -> Iterator[WrappedLayout]:
    """Those whose replicas fill each kind; which samples they take is open, so the batch need not be divided evenly."""
    world = question.space.world_size
    space = replace(question.space, global_batch=world, pp=(1,))
    for layout in layouts(space, formula_profile(question.model))[0]:
        if layout.replicas > 1 and all(rank % (world // layout.replicas) == 0 for rank in ranks):
            yield layout


@dataclass(frozen=True, slots=True)
class _Found:
    """A candidate, what orders it (misses last; seconds, or need in devices), and its passes by kind."""

    order: tuple[bool, float]
    layout: Layout
    setting: Setting
    taken: tuple[int, int]

    def plan(self, questions: Questions, ranks: tuple[int, int]) -> UnlikeGang[LayoutPlan]:
        """The candidate with the terms of both kinds."""
        replicas = replicas_of(ranks, self.layout)
        most = [-(-own // count) for own, count in zip(self.taken, replicas, strict=True)]
        first, second = (self._of_kind(question, count) for question, count in zip(questions, most, strict=True))
        shares = dealt_samples(self.layout, self.setting, self.taken, replicas)
        return UnlikeGang(layout=self.layout, setting=self.setting, shares=shares, kinds=(first, second))

    def _of_kind(self, question: Question, passes: int) -> LayoutPlan:
        """Plan as if all replicas took so many `passes` on this kind."""
        batch = passes * self.setting.micro_batch * self.layout.mesh.data_parallel
        asked = replace(question, space=replace(question.space, global_batch=batch))
        return only_plan(asked, self.layout, self.setting)


def replicas_of(ranks: tuple[int, int], layout: Layout) -> tuple[int, int]:
    """Replicas of each kind, of which so many ranks are."""
    size = layout.mesh.world_size // layout.replicas
    return ranks[0] // size, ranks[1] // size


def whole_passes(sizes: Sequence[int], global_batch: int, layout: Layout) -> list[tuple[int, int]]:
    """Those of `sizes` whose passes the batch is made of, with their number, at least one a replica."""
    counted = ((size, *divmod(global_batch, size * layout.mesh.dp_shard)) for size in sizes)
    return [(size, passes) for size, passes, left in counted if not left and passes >= layout.replicas]


def dealt_samples(layout: Layout, setting: Setting, taken: Sequence[int], replicas: tuple[int, int]) -> tuple[int, ...]:
    """Samples of a step by replica, of passes that the replicas of each kind take."""
    samples = setting.micro_batch * layout.mesh.dp_shard
    dealt = (even_shares(own, count) for own, count in zip(taken, replicas, strict=True))
    return tuple(samples * share for shares in dealt for share in shares)


class _Ways:
    """All ways to run one layout on both kinds."""

    def __init__(
        self, questions: Questions, ranks: tuple[int, int], layout: Layout, seen: Sequence[dict[object, StepParts]]
    ) -> None:
        self._layout, self._questions = layout, questions
        self._replicas = replicas_of(ranks, layout)
        self._kinds = tuple(LayoutCandidates(each, layout, own) for each, own in zip(questions, seen, strict=True))
        question, space = questions[0], questions[0].space
        self._stages = stages_of(question.model, 1, SCHEDULE)
        self._bytes: dict[tuple[Sync, int, str, int], float] = {}
        self._sizes = whole_passes(space.micro_batches, space.global_batch, layout)
        syncs: tuple[Sync, ...] = tuple(space.syncs) if layout.wrapping.shards else ("last",)
        self._runs = [
            (sync, chunks) for sync in syncs for chunks in space.loss_chunks
            if not question.support(layout, sync, chunks)
        ]  # fmt: skip
        self.num_candidates = len(self._sizes) * len(self._runs) * len(space.recompute)
        self.num_weighed = self.num_fit = 0

    @property
    def bound_seconds(self) -> float:
        """No step takes less; passes of single samples take no longer than others but for latencies."""
        return self._bound(1, self._sizes[0][1], "none", waits=False)

    def _bound(self, size: int, passes: int, recompute: str, *, waits: bool = True) -> float:
        """Seconds of passes of one size, with which all replicas are done at once."""
        works = (kind.passes_of(self._stages, size, 1, recompute, waits=waits) for kind in self._kinds)
        return passes / sum(count / work.total for count, work in zip(self._replicas, works, strict=True))

    def best(self) -> _Found | None:
        """The fastest that fits, else the nearest miss."""
        best: _Found | None = None
        for size, passes in self._sizes:
            for recompute in self._questions[0].space.recompute:
                if best is None or best.order[0] or self._bound(size, passes, recompute) < best.order[1]:
                    best = self._best_of(size, passes, recompute, best)
        return best

    def _best_of(self, size: int, passes: int, recompute: str, best: _Found | None) -> _Found | None:
        parts = [kind.passes_of(self._stages, size, 1, recompute) for kind in self._kinds]
        dealt: dict[Sync, tuple[tuple[int, int], float]] = {}
        for sync, chunks in self._runs:
            self.num_weighed += 1
            if sync not in dealt:
                dealt[sync] = self._deal(passes, parts, sync)
            taken, seconds = dealt[sync]
            need = self._need((size, recompute, chunks), sync, taken)
            self.num_fit += need <= 1
            order = (need > 1, need if need > 1 else seconds)
            if best is None or order < best.order:
                setting = self._questions[0].setting(size, recompute, chunks, sync, SCHEDULE)
                best = _Found(order, self._layout, setting, taken)
        return best

    def _deal(self, passes: int, each: list[StepParts], sync: Sync) -> tuple[tuple[int, int], float]:
        """Passes by kind, and seconds until the last replica is done."""
        first, second = (
            _seconds_by_passes(kind, self._stages, parts, sync, overlap=question.hardware.overlap)
            for kind, parts, question in zip(self._kinds, each, self._questions, strict=True)
        )
        taken = deal_passes(passes, self._replicas, (first, second))
        most = [-(-own // count) for own, count in zip(taken, self._replicas, strict=True)]
        return taken, max(first(most[0]), second(most[1]))

    def _need(self, way: tuple[int, str, int], sync: Sync, taken: tuple[int, int]) -> float:
        """Need of the fuller kind, in what a rank of it may hold."""
        found = []
        for question, own, count in zip(self._questions, taken, self._replicas, strict=True):
            need = self._need_bytes(way, held_sync(sync, -(-own // count)))
            found.append(need / question.usable_bytes if question.usable_bytes else inf)
        return max(found)

    def _need_bytes(self, way: tuple[int, str, int], sync: Sync) -> float:
        """Need of a rank of either kind, which keeps one micro-batch at a time, however many there are."""
        if (sync, *way) not in self._bytes:
            kind = self._kinds[0]
            self._bytes[sync, *way] = max(
                kind.state_bytes(load, sync) + kind.work_bytes(load, *way) for load in self._stages.loads(1)
            )
        return self._bytes[sync, *way]


def _seconds_by_passes(
    kind: LayoutCandidates, stages: Stages, each: StepParts, sync: Sync, *, overlap: float
) -> Callable[[int], float]:
    """Seconds of a step by its passes: exchanges grow with them evenly, and computing hides its share of them."""
    (one, update, _), (two, _, _) = (kind.added_seconds(stages, sync, count) for count in (1, 2))
    grows, hidden, work = two - one, overlap * each.compute, each.total
    fixed = one - grows
    return lambda passes: passes * work + max(0.0, fixed + passes * (grows - hidden)) + update
