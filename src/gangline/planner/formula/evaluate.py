"""Evaluation of all candidates: memory of each, step of those that fit, and the best of every layout. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import add

from gangline.planner.contest import SearchSummary
from gangline.planner.cost.memory import RankMemory
from gangline.planner.cost.speeds import transfer_seconds
from gangline.planner.formula.inputs import Question, formula_profile
from gangline.planner.formula.memory import (
    StageLoad,
    Stages,
    activation_memory,
    held_sync,
    host_memory,
    rank_memory,
    stages_of,
    state_memory,
)
from gangline.planner.formula.step_time import (
    StepParts,
    exchange_seconds,
    late_updates,
    passes,
    squeeze_seconds,
    step_bound_seconds,
    update_seconds,
)
from gangline.planner.layouts.bubble import runnable_schedules
from gangline.planner.layouts.enumerate import Sync, layouts
from gangline.planner.layouts.layout import Layout
from gangline.planner.settings import Setting
from gangline.spec.forecast import UpdateTraffic

MOST_WEIGHED = 5_000
"""Candidates that are weighed one by one, in some tens of milliseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutPlan:
    """The best candidate of one layout: the fastest that fits and that ranks here run, else the nearest miss."""

    layout: Layout
    setting: Setting
    memory: RankMemory
    parts: StepParts
    fits: bool
    unsupported: str = ""
    """The rule, where ranks here run none of its candidates."""
    updates: UpdateTraffic | None = None
    """Updates of matrices, where they travel during the next forward pass."""

    @property
    def on_host(self) -> bool:
        """Its shards wait there."""
        return self.setting.memory.offload == "cpu"

    @property
    def step_seconds(self) -> float:
        """Seconds of one step."""
        return self.parts.total

    @property
    def order(self) -> tuple[bool, float]:
        """The fastest that fit come first, then the nearest misses."""
        return not self.fits, self.step_seconds if self.fits else self.memory.total

    @property
    def name(self) -> str:
        """Name with how it is run: `fsdp-16 b4s`; f and s recompute all or what is cheap."""
        word = self.setting.memory.activation_checkpointing
        again = {"none": "", "selective": "s", "full": "f"}.get(word, word)
        return f"{self.layout.name} b{self.setting.micro_batch}{again}{' host' if self.on_host else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Candidates of a question, by layout."""

    plans: tuple[LayoutPlan, ...]
    """One a layout, the fastest first, then misses, the nearest first."""
    slower: dict[Layout, float] = field(default_factory=dict)
    """Layouts that were not weighed, as even their bound is beyond the band of the best: seconds of a step at least."""
    search: SearchSummary


def evaluate(question: Question, *, band: float = 0.0, most_weighed: int = MOST_WEIGHED) -> Evaluation:
    """The best candidate of every layout that may be within `band` of the best of all.

    Up to `most_weighed` candidates are weighed one by one. Of more, those are left out whose bound from below (no block
    computed again, least traffic, least bubble) already loses: what is left has the same best plans.
    """
    wrapped_layouts, ruled_out = layouts(question.space, formula_profile(question.model))
    seen: dict[object, StepParts] = {}
    groups = [LayoutCandidates(question, layout, seen) for layout in wrapped_layouts]
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
    plans.sort(key=lambda layout_plan: layout_plan.order)
    summary = SearchSummary(
        num_candidates=counted, num_weighed=sum(each.num_weighed for each in groups),
        num_fit=sum(each.num_fit for each in groups),
        bound_seconds=None if question.missing else step_bound_seconds(question), struck=dict(ruled_out),
    )  # fmt: skip
    return Evaluation(plans=tuple(plans), slower=slower, search=summary)


def only_plan(question: Question, layout: Layout, setting: Setting) -> LayoutPlan:
    """The plan of `layout` as `setting` runs it."""
    memory = setting.memory
    space = replace(
        question.space, micro_batches=(setting.micro_batch,), recompute=(memory.activation_checkpointing,),
        loss_chunks=(memory.loss_chunks,), syncs=(memory.gradient_sync,),
        schedules=(setting.schedule,) if setting.schedule else question.space.schedules,
    )  # fmt: skip
    plan = LayoutCandidates(replace(question, space=space), layout, {}).best()
    assert plan is not None, "its only candidate"
    return plan


def layout_memory(question: Question, layout: Layout, setting: Setting) -> RankMemory:
    """Memory of the fullest rank."""
    stages, memory = stages_of(question.model, layout.mesh.pp, setting.schedule or "1f1b"), setting.memory
    count = -(-question.space.global_batch // (layout.mesh.data_parallel * setting.micro_batch))
    memories = (
        rank_memory(
            question, layout, load, sync=held_sync(memory.gradient_sync, count), micro_batch=setting.micro_batch,
            recompute=memory.activation_checkpointing, loss_chunks=memory.loss_chunks,
        )
        for load in stages.loads(count)
    )  # fmt: skip
    return max(memories, key=lambda each: each.total)


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
        schedules = {each for *_, own in self._sizes for each in own}
        stages = [stages_of(self._question.model, self.layout.mesh.pp, schedule) for schedule in schedules]
        fewest = min((count for _, count, _ in self._sizes), default=1)
        singles = ((self.passes_of(stage, 1, self._samples, "none", waits=False), stage) for stage in stages)
        return min((self._least_seconds(parts, each, fewest) for parts, each in singles), default=inf)

    def _least_seconds(self, parts: StepParts, stages: Stages, fewest: int) -> float:
        """Seconds of passes without recomputation, with the traffic of `fewest` of them, whose gradients are reduced
        once if they may be."""
        exchange, update, _ = self.added_seconds(stages, "last" if "last" in self._syncs else "each", fewest)
        hidden = self._question.hardware.overlap * parts.compute
        late = late_updates(
            self._question, self.layout, compute=0.0, exchange=0.0, micro_batches=1, recompute="none"
        )  # fmt: skip
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
            work = [self.work_bytes(stage_load, micro_batch, recompute, chunks) for stage_load in loads]
            return max(state + held for state, held in zip(states, work, strict=True))

        nearest = min(space.recompute, key=need)
        return space.recompute if need(nearest) <= self._question.usable_bytes else [nearest]

    def _best_of(
        self, stages: Stages, micro_batch: int, count: int, best: _Best | None, recomputes: Sequence[str]
    ) -> _Best | None:
        """`best`, or a better one of what one schedule and size of micro-batches leave open."""
        question, space, usable = self._question, self._question.space, self._question.usable_bytes
        loads = stages.loads(count)
        room = self._holds_on_host(loads)
        states = {sync: [self.state_bytes(load, held_sync(sync, count)) for load in loads] for sync in self._syncs}
        added = {sync: self.added_seconds(stages, sync, count) for sync in self._syncs}
        self.num_weighed += self._ways * len(recomputes) // len(space.recompute)
        for recompute in recomputes:
            parts = self.passes_of(stages, micro_batch, count, recompute)
            hidden = question.hardware.overlap * parts.compute
            for chunks in space.loss_chunks:
                work = [self.work_bytes(load, micro_batch, recompute, chunks) for load in loads]
                for sync in self._syncs:
                    need = max(map(add, states[sync], work))
                    fits = need <= usable and room
                    self.num_fit += fits
                    exchange, update, host = added[sync]
                    late = late_updates(
                        question, self.layout, compute=parts.compute, exchange=exchange, micro_batches=count,
                        recompute=recompute,
                    )  # fmt: skip
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
        return sum(state_memory(self._question, self.layout, load.parameters / self.layout.mesh.tp, sync=sync))

    def work_bytes(self, load: StageLoad, micro_batch: int, recompute: str, chunks: int) -> float:
        """Bytes of a rank with this load, in addition to its state."""
        question = self._question
        work = activation_memory(
            question, self.layout, load, micro_batch=micro_batch, recompute=recompute, loss_chunks=chunks
        )  # fmt: skip
        return max(sum(work), 0.0 if question.space.on_host else question.optimizer.update_bytes(self.layout.mesh))

    def passes_of(
        self, stages: Stages, micro_batch: int, count: int, recompute: str, *, waits: bool = True
    ) -> StepParts:
        """Parts of all `count` passes of a step, whose messages take their bytes alone or also wait their latency."""
        mesh = self.layout.mesh
        key = (mesh.tp, mesh.pp, mesh.cp, mesh.ep, stages.schedule, micro_batch, count, recompute, waits)
        if key not in self._seen:
            self._seen[key] = passes(
                self._question, self.layout, stages, micro_batch=micro_batch, micro_batches=count, recompute=recompute,
                waits=waits,
            )  # fmt: skip
        return self._seen[key]

    def added_seconds(self, stages: Stages, sync: Sync, count: int) -> tuple[float, float, float]:
        """Exchange of data-parallel ranks before any of it is hidden, update and compression, and host traffic."""
        key, question, layout = (stages.rank_parameters, sync, count), self._question, self.layout
        if key not in self._added:
            most = max(stages.rank_parameters) / layout.mesh.tp
            load = question.load(self._samples // count, count, sync)
            exchange = exchange_seconds(question, layout, most, load, blocks=max(stages.rank_blocks))
            update = update_seconds(question, layout, most) + squeeze_seconds(question, layout, most)
            host = 0.0
            if question.space.on_host:
                host = transfer_seconds(most / layout.shards, question.hardware.host, layout.wrapping, load)
            self._added[key] = exchange, update, host
        return self._added[key]

    def _plan(self, best: _Best) -> LayoutPlan:
        """The best candidate with its terms."""
        question, stages, (micro_batch, recompute, _, sync) = self._question, best.stages, best.way
        setting, count = question.setting(*best.way, stages.schedule), self._samples // micro_batch
        parts = self.passes_of(stages, micro_batch, count, recompute)
        exchange, update, host = self.added_seconds(stages, sync, count)
        exposed = max(0.0, exchange - question.hardware.overlap * parts.compute)
        late = late_updates(
            question, self.layout, compute=parts.compute, exchange=exchange, micro_batches=count, recompute=recompute
        )
        squeeze = squeeze_seconds(question, self.layout, max(stages.rank_parameters) / self.layout.mesh.tp)
        update -= squeeze + (late.hidden_seconds if late else 0.0)
        return LayoutPlan(
            layout=self.layout, setting=setting, memory=layout_memory(question, self.layout, setting), fits=best.fits,
            parts=replace(parts, compute=parts.compute + squeeze, exchange=exposed, optimizer=update, host=host),
            unsupported=best.unsupported, updates=late,
        )  # fmt: skip
