"""Evaluation of all candidates: memory of each, step of those that fit, and the best of every layout. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import add

from gangline.planner.cost.memory import RankMemory
from gangline.planner.formula.exchange import exchange_seconds, squeeze_seconds
from gangline.planner.formula.memory import (
    StageLoad,
    activation_memory,
    held_sync,
    host_memory,
    rank_memory,
    state_memory,
    update_memory,
)
from gangline.planner.formula.plan import Evaluation, LayoutPlan, Question
from gangline.planner.formula.step_time import (
    Hardware,
    Stages,
    StepParts,
    host_seconds,
    late_updates,
    passes,
    stages_of,
    step_bound_seconds,
    update_seconds,
)
from gangline.planner.layouts.bubble import runnable_schedules
from gangline.planner.layouts.enumerate import Divisions, Sync, layouts
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import PASS_BYTES, Setting
from gangline.spec.forecast import UpdateTraffic

MOST_WEIGHED = 5_000
"""Candidates that are weighed one by one, in some tens of milliseconds."""


def evaluate(question: Question, *, band: float = 0.0, most_weighed: int = MOST_WEIGHED) -> Evaluation[LayoutPlan]:
    """The best candidate of every layout that may be within `band` of the best of all.

    Up to `most_weighed` candidates are weighed one by one. Of more, those are left out whose bound from below (no block
    computed again, least traffic, least bubble) already loses: what is left has the same best plans.
    """
    found, ruled_out = layouts(question.space, Divisions.of(question.model))
    seen: dict[object, StepParts] = {}
    groups = [LayoutCandidates(question, layout, seen) for layout in found]
    counted = sum(each.num_candidates for each in groups)
    prunes = counted > most_weighed
    bounds = {each: each.bound_seconds() if prunes else 0.0 for each in groups}
    plans: list[LayoutPlan] = []
    slower: dict[Layout, float] = {}
    best = inf
    for each in sorted(groups, key=lambda group: bounds[group]):
        if bounds[each] > best * (1 + band):
            slower[each.layout] = bounds[each]
            continue
        plan = each.best(prunes=prunes)
        if plan is not None:
            plans.append(plan)
            best = min(best, plan.step_seconds) if plan.fits and not plan.unsupported else best
    plans.sort(key=lambda each: each.order)
    return Evaluation(
        plans=tuple(plans),
        slower=slower,
        num_candidates=counted,
        num_weighed=sum(each.num_weighed for each in groups),
        num_fit=sum(each.num_fit for each in groups),
        bound_seconds=step_bound_seconds(question.model, question.space, question.hardware),
        ruled_out=ruled_out,
    )


def layout_memory(question: Question, layout: Layout, setting: Setting) -> RankMemory:
    """Memory of the fullest rank."""
    stages, memory = stages_of(question.model, layout.mesh.pp, setting.schedule or "1f1b"), setting.memory
    count = -(-question.space.global_batch // (layout.mesh.data_parallel * setting.micro_batch))
    found = (
        rank_memory(
            question.model, layout, load, sync=held_sync(memory.gradient_sync, count),
            micro_batch=setting.micro_batch, recompute=memory.activation_checkpointing, loss_chunks=memory.loss_chunks,
            precision=question.precision, optimizer=question.optimizer, on_host=question.space.on_host,
        )
        for load in stages.loads(count)
    )  # fmt: skip
    return max(found, key=lambda each: each.total)


@dataclass(frozen=True, slots=True)
class _Best:
    """The best candidate so far, and what orders it: run by ranks here, fits, seconds or bytes."""

    order: tuple[bool, bool, float]
    way: tuple[int, str, int, Sync]
    """Micro-batch, recomputation, pieces of the loss, sync: what `Question.setting` takes before the schedule."""
    stages: Stages
    unsupported: str

    @property
    def fits(self) -> bool:
        """A rank holds it."""
        return not self.order[1]


class LayoutCandidates:
    """All ways to run one layout.

    Passes are equal in all layouts that cut the model alike, however data-parallel ranks hold it: `seen` keeps them.
    """

    def __init__(self, question: Question, layout: Layout, seen: dict[object, StepParts]) -> None:
        self.layout, self._question, self._seen = layout, question, seen
        space, ranks, blocks = question.space, layout.mesh.pp, question.model.layers
        self._samples = space.global_batch // layout.mesh.data_parallel
        self._syncs: Sequence[Sync] = space.syncs if layout.wrapping.shards else ("last",)
        self._sizes = [
            (size, count, schedules)
            for size, count in ((size, self._samples // size) for size in space.micro_batches)
            if self._samples % size == 0
            and (schedules := runnable_schedules(ranks, count, blocks=blocks, among=space.schedules))
        ]
        self._ways = len(space.recompute) * len(space.loss_chunks) * len(self._syncs)
        self._support = {
            (sync, chunks): question.support(layout, sync, chunks)
            for sync in self._syncs
            for chunks in space.loss_chunks
        }
        self._added: dict[tuple[tuple[int, ...], Sync, int], tuple[float, float, float]] = {}
        self.num_weighed = self.num_fit = 0

    @property
    def num_candidates(self) -> int:
        """Ways to run this layout."""
        return self._ways * sum(len(schedules) for _, _, schedules in self._sizes)

    def bound_seconds(self) -> float:
        """No step of the layout takes less: passes of single samples, which leave the least bubble, without latencies,
        of which fewer passes have fewer, and the traffic of the fewest passes."""
        stages = {
            stages_of(self._question.model, self.layout.mesh.pp, each) for *_, all_ in self._sizes for each in all_
        }
        fewest = min((count for _, count, _ in self._sizes), default=1)
        return min((self._least_seconds(self.least_passes_of(each), each, fewest) for each in stages), default=inf)

    def _least_seconds(self, parts: StepParts, stages: Stages, fewest: int) -> float:
        """Seconds of passes without recomputation, with the traffic of `fewest` of them."""
        exchange, update, _ = min(self.added_seconds(stages, sync, fewest) for sync in self._syncs)
        hidden = self._question.hardware.overlap * parts.compute
        late = self._late_updates(0.0, 0.0, 1, "none")
        return parts.total + max(0.0, exchange - hidden) + update - (min(late.seconds, hidden) if late else 0.0)

    def best(self, *, prunes: bool = False) -> LayoutPlan | None:
        """None: no size of a micro-batch divides a rank's share, or no schedule takes it."""
        best: _Best | None = None
        passes = [
            (stages_of(self._question.model, self.layout.mesh.pp, schedule), micro_batch, count)
            for micro_batch, count, schedules in self._sizes
            for schedule in schedules
        ]
        runs = not all(self._support.values())
        least = {
            each: self._least_seconds(self.passes_of(*each, "none"), each[0], each[-1]) if prunes else 0.0
            for each in passes
        }
        for each in sorted(passes, key=lambda one: least[one]):
            if best is not None and best.fits and bool(best.unsupported) != runs and least[each] >= best.order[2]:
                break
            best = self._best_of(*each, best, self._promising(*each) if prunes else self._question.space.recompute)
        return None if best is None else self._plan(best)

    def _promising(self, stages: Stages, micro_batch: int, count: int) -> Sequence[str]:
        """Words of recomputation to weigh: all, or where none of them lets it fit, the one that comes nearest."""
        space = self._question.space
        sync = held_sync("each" if "each" in self._syncs else "last", count)
        loads = stages.loads(count)
        states = [self.state_bytes(load, sync) for load in loads]

        def need(recompute: str) -> float:
            chunks = space.loss_chunks[-1]
            work = [self.work_bytes(each, micro_batch, recompute, chunks) for each in loads]
            return max(state + held for state, held in zip(states, work, strict=True))

        nearest = min(space.recompute, key=need)
        return space.recompute if need(nearest) <= self._question.usable_bytes else [nearest]

    def _best_of(
        self, stages: Stages, micro_batch: int, count: int, best: _Best | None, recomputes: Sequence[str]
    ) -> _Best | None:
        """`best`, or a better one of what one schedule and size of micro-batches leave open."""
        space, usable = self._question.space, self._question.usable_bytes
        loads = stages.loads(count)
        room = self._holds_on_host(loads)
        states = {sync: [self.state_bytes(load, held_sync(sync, count)) for load in loads] for sync in self._syncs}
        added = {sync: self.added_seconds(stages, sync, count) for sync in self._syncs}
        self.num_weighed += self._ways * len(recomputes) // len(space.recompute)
        for recompute in recomputes:
            parts = self.passes_of(stages, micro_batch, count, recompute)
            hidden = self._question.hardware.overlap * parts.compute
            for chunks in space.loss_chunks:
                work = [self.work_bytes(load, micro_batch, recompute, chunks) for load in loads]
                for sync in self._syncs:
                    need = max(map(add, states[sync], work))
                    fits = need <= usable and room
                    self.num_fit += fits
                    exchange, update, host = added[sync]
                    late = self._late_updates(parts.compute, exchange, count, recompute)
                    update -= late.hidden_seconds if late else 0.0
                    seconds = parts.total + max(0.0, exchange - hidden) + update + host
                    unsupported = self._support[sync, chunks]
                    order = (bool(unsupported), not fits, seconds if fits else need)
                    if best is None or order < best.order:
                        best = _Best(order, (micro_batch, recompute, chunks, sync), stages, unsupported)
        return best

    def _holds_on_host(self, loads: Sequence[StageLoad]) -> bool:
        """Shards with their gradients and optimizer find room in the memory of the server, or are not there."""
        question = self._question
        if not question.space.on_host:
            return True
        most = max(load.parameters for load in loads) / self.layout.mesh.tp
        return host_memory(self.layout, most, question.optimizer) <= question.usable_host_bytes

    def state_bytes(self, load: StageLoad, sync: Sync) -> float:
        """State of a rank with this load."""
        question = self._question
        return sum(
            state_memory(
                self.layout, load.parameters / self.layout.mesh.tp, sync=sync,
                width_bytes=PASS_BYTES[question.precision], optimizer=question.optimizer,
                on_host=question.space.on_host,
            )
        )  # fmt: skip

    def work_bytes(self, load: StageLoad, micro_batch: int, recompute: str, chunks: int) -> float:
        """Bytes of a rank with this load, in addition to its state."""
        question = self._question
        work = activation_memory(
            question.model, self.layout, load, micro_batch=micro_batch, recompute=recompute, loss_chunks=chunks,
            precision=question.precision,
        )  # fmt: skip
        return max(sum(work), 0.0 if question.space.on_host else update_memory(self.layout, question.optimizer))

    def passes_of(self, stages: Stages, micro_batch: int, count: int, recompute: str) -> StepParts:
        """Parts of all `count` passes of a step."""
        return self._passes(self._question.hardware, stages, micro_batch, count, recompute)

    def least_passes_of(self, stages: Stages, count: int | None = None) -> StepParts:
        """Parts of `count` single samples, none: of all of a step, without recomputation and latency of messages."""
        return self._passes(
            self._question.hardware.without_latency, stages, 1, self._samples if count is None else count, "none"
        )

    def _passes(self, hardware: Hardware, stages: Stages, micro_batch: int, count: int, recompute: str) -> StepParts:
        """Computed once."""
        question, mesh = self._question, self.layout.mesh
        waits = hardware is question.hardware
        key = (mesh.tp, mesh.pp, mesh.cp, mesh.ep, stages.schedule, micro_batch, count, recompute, waits)
        if key not in self._seen:
            self._seen[key] = passes(
                question.model, self.layout, stages, hardware, micro_batch=micro_batch, micro_batches=count,
                recompute=recompute, precision=question.precision,
            )  # fmt: skip
        return self._seen[key]

    def added_seconds(self, stages: Stages, sync: Sync, count: int) -> tuple[float, float, float]:
        """Exchange of data-parallel ranks before any of it is hidden, update and compression, and host traffic."""
        key = stages.rank_parameters, sync, count
        if key not in self._added:
            self._added[key] = self._count_added(stages, sync, count)
        return self._added[key]

    def _count_added(self, stages: Stages, sync: Sync, count: int) -> tuple[float, float, float]:
        question, layout = self._question, self.layout
        most = max(stages.rank_parameters) / layout.mesh.tp
        exchange = exchange_seconds(
            layout, most, question.hardware, blocks=max(stages.rank_blocks), sync=sync, micro_batches=count,
            precision=question.precision, optimizer=question.optimizer, averaging=question.averaging,
        )  # fmt: skip
        on_host = question.space.on_host
        update = update_seconds(layout, most, question.hardware, optimizer=question.optimizer, on_host=on_host)
        update += squeeze_seconds(layout, most, question.hardware, question.averaging)
        host = host_seconds(layout, most, question.hardware, sync=sync, micro_batches=count) if on_host else 0.0
        return exchange, update, host

    def _late_updates(self, compute: float, exchange: float, count: int, recompute: str) -> UpdateTraffic | None:
        """Updates of a step of `count` micro-batches; None: none travel during the next forward pass."""
        question = self._question
        return late_updates(
            question.model, self.layout, question.hardware, question.optimizer, compute=compute, exchange=exchange,
            micro_batches=count, recompute=recompute,
        )  # fmt: skip

    def _plan(self, best: _Best) -> LayoutPlan:
        """The best candidate with its terms."""
        question, stages, (micro_batch, recompute, _, sync) = self._question, best.stages, best.way
        setting, count = question.setting(*best.way, stages.schedule), self._samples // micro_batch
        parts = self.passes_of(stages, micro_batch, count, recompute)
        exchange, update, host = self.added_seconds(stages, sync, count)
        exposed = max(0.0, exchange - question.hardware.overlap * parts.compute)
        late = self._late_updates(parts.compute, exchange, count, recompute)
        most = max(stages.rank_parameters) / self.layout.mesh.tp
        squeeze = squeeze_seconds(self.layout, most, question.hardware, question.averaging)
        update -= squeeze + (late.hidden_seconds if late else 0.0)
        return LayoutPlan(
            layout=self.layout, setting=setting, memory=layout_memory(question, self.layout, setting), fits=best.fits,
            parts=replace(parts, compute=parts.compute + squeeze, exchange=exposed, optimizer=update, host=host),
            unsupported=best.unsupported, updates=late,
        )  # fmt: skip
