"""Slow ranks: step times, and the reaction that the plan asks for: an event, rebalanced work, eviction of a node.

Step times of all ranks are exchanged every 5 to 10 steps. Every rank makes the same decision by itself, from the times
that all ranks know. In rebalanced work replicas take samples in proportion to their speed. Each loss is a sum with its
weight, so the mean over the step does not change. Ranks inside a replica synchronize in every pass and take equal
shares.
"""

from collections.abc import Mapping, Sequence
from statistics import median

import torch
import torch.distributed as dist

from gangline.fabric.reliability.shares import GAIN, by_speed, even_shares
from gangline.fabric.reliability.step_times import WORK, PeerGroup, Straggler, WindowRange, WindowTimes
from gangline.fabric.reliability.stragglers import MOST_STEPS, StragglerDetector, why_not_judged, window_steps
from gangline.keeper.ipc.requests import EvictionRequest, request_eviction
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.sample_order import Shares, rank_spans
from gangline.train.runtime.context import RankContext

_CUT = 0.2
"""Share of a window's steps that is left out at either end, by their work, so that one outlier makes no rank slow."""
_COLUMNS = len(WORK) + 3
"""Columns of a rank's row: work by phase, wait, samples, 1 if the window must not be used."""


class StepRate:
    """Step times of one rank; all ranks make the same calls in the same order."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        mesh = context.plan.mesh
        self._detector = StragglerDetector(lambda rank: PeerGroup(mesh.coordinates(rank)["pp"], mesh.data_rank(rank)))
        self._steps: list[list[float]] = []
        self._window_steps = MOST_STEPS
        """Length of the window that is being filled; changed by what all ranks know, so equal on all ranks."""
        self._in_flight: tuple[dist.Work, torch.Tensor] | None = None

    @property
    def slow(self) -> Mapping[int, Straggler]:
        """Slow ranks, equal on all ranks."""
        return self._detector.stragglers

    @property
    def recent(self) -> WindowRange | None:
        """Times of all ranks over the last windows; None if there are too few."""
        return self._detector.recent

    def step_done(self, step: int, phases: Mapping[str, float], *, samples: int, disturbed: bool = False) -> bool:
        """Record a step of this rank; True if a window of all ranks was checked, equal on all ranks.

        Args:
            step: The finished step.
            phases: Its seconds by phase.
            samples: Samples that this rank computed.
            disturbed: The step is not representative, for example because it was profiled: its window is not used.
        """
        is_judged = self._receive(step)
        own = [*(phases[name] for name in WORK), phases["wait"] + phases["bubble"]]
        self._steps.append([*own, float(samples), float(disturbed)])
        if len(self._steps) >= self._window_steps:
            context = self._context
            table = torch.zeros(context.plan.world_size, _COLUMNS, dtype=torch.float64)
            table[context.rank] = _trimmed_mean(self._steps)
            work = dist.all_reduce(table, group=context.groups.control, async_op=True)
            assert work is not None, "this rank belongs to the group"
            self._in_flight = work, table
            self._steps.clear()
        return is_judged

    def forget(self) -> None:
        """Drop all times: the shares have changed."""
        self.close()
        self._detector.forget()
        self._steps.clear()

    def close(self) -> None:
        """Wait for the exchange in flight, as the peers do."""
        if self._in_flight is not None:
            self._in_flight[0].wait()
            self._in_flight = None

    def _receive(self, step: int) -> bool:
        """Check the window that was sent one step ago; False if there is none or it must not be used."""
        if self._in_flight is None:
            return False
        work, table = self._in_flight
        self._in_flight = None
        work.wait()
        rows = table.tolist()
        times = [_times(row) for row in rows]
        steps, self._window_steps = self._window_steps, window_steps(median(time.seconds for time in times))
        if any(row[-1] for row in rows):
            return False
        new, over = self._detector.add_window(times, steps=steps)
        if self._context.rank == 0:
            self._emit("straggler", step, new)
            self._emit("straggler_over", step, over)
        return True

    def _emit(self, event: str, step: int, found: list[Straggler]) -> None:
        for straggler in found:
            self._context.events.emit(
                event, step=step, slow=straggler.rank, node=self._context.node_of(straggler.rank),
                ratio=straggler.ratio, seconds=straggler.seconds, step_seconds=straggler.step_seconds,
                phase=straggler.phase, wait_share=straggler.wait_share,
            )  # fmt: skip


def _trimmed_mean(steps: list[list[float]]) -> torch.Tensor:
    """Mean of each column over the steps without those of least and most work; of the last column the maximum of all.

    Whole steps are left out, not values of each column: a delay that falls now into one phase, now into another, is
    an outlier in every column, and would be gone.
    """
    rows = torch.tensor(steps, dtype=torch.float64)
    cut = int(_CUT * len(steps))
    by_work = rows[:, : len(WORK)].sum(dim=1).argsort()
    means = rows[by_work[cut : len(steps) - cut]].mean(dim=0)
    means[-1] = rows[:, -1].max()
    return means


def _times(row: list[float]) -> WindowTimes:
    *work, wait, samples, _ = row
    return WindowTimes(work=dict(zip(WORK, work, strict=True)), wait=wait, samples=samples)


class HealthChecks:
    """Health checks of one rank; all ranks make the same calls in the same order."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._step_rate = StepRate(context)
        self._rebalancer: WorkRebalancer | None = None
        self._is_rebalanced = False
        """Shares have changed since the step that is reported next: its times are those of the old ones."""
        self._has_said = False
        self._unjudged = why_not_judged(context.device.type)
        self._obstacle = ""
        self._evicts = context.plan.recovery.stragglers == "evict"
        if context.plan.recovery.stragglers == "rebalance":
            self._obstacle = _why_not_rebalanced(context)
            self._rebalancer = None if self._obstacle else WorkRebalancer(context, self._step_rate)

    def step_done(self, progress: TrainingProgress, phases: Mapping[str, float], *, disturbed: bool) -> None:
        """Record a finished step, in which this rank's seconds went into `phases`."""
        if self._unjudged:
            self._say_unjudged(progress.step)
            return
        if self._is_rebalanced:
            self._is_rebalanced = False
            return
        plan, data = self._context.plan, self._context.data_rank
        start, stop = rank_spans(plan.global_batch, ranks=self._context.data_ranks, shares=progress.shares)[data]
        if not self._step_rate.step_done(progress.step, phases, samples=stop - start, disturbed=disturbed):
            return
        if self._rebalancer is not None:
            self._rebalancer.decide(progress)
        elif self._evicts and self._step_rate.slow:
            self._evicts = False
            self._evict(progress.step, max(self._step_rate.slow.values(), key=lambda straggler: straggler.seconds))
        elif self._obstacle and self._step_rate.slow:
            self._emit(progress.step, self._obstacle)
            self._obstacle = ""

    def between_steps(self, progress: TrainingProgress, *, saves: bool) -> None:
        """Called after a step, before it is saved if `saves`."""
        if self._rebalancer is not None:
            self._is_rebalanced = self._rebalancer.rebalance(progress, saves=saves)

    def resumed(self, progress: TrainingProgress) -> None:
        """Return to the shares of the plan, until slow ranks are known, if a resume changed the number of replicas."""
        if len(progress.shares) != self._context.plan.mesh.dp_replicate or self._rebalancer is None:
            progress.shares = self._context.plan.shares

    def close(self) -> None:
        self._step_rate.close()

    def _evict(self, step: int, slow: Straggler) -> None:
        """Request the eviction, once a generation; the keeper decides."""
        context, why = self._context, _why_not_evicted(self._context, slow.rank)
        reason = f"rank {slow.rank} takes {slow.ratio:.2f} times as long as the others"
        if context.rank == 0 and context.out is not None and not why:
            request = EvictionRequest(generation=context.generation, rank=slow.rank, reason=reason)
            request_eviction(context.out.parent, request)
        self._emit(step, f"{reason}; {why or 'its node is to leave, the others resume from their checkpoint'}")

    def _say_unjudged(self, step: int) -> None:
        """Say once a generation that no rank is judged, and what the plan wants that it therefore does not get."""
        context, answer = self._context, self._context.plan.recovery.stragglers
        if context.rank == 0 and not self._has_said:
            unmet = "" if answer == "name" else f'; train.recovery.stragglers = "{answer}" has no effect'
            context.events.emit("stragglers_not_judged", step=step, reason=f"{self._unjudged}{unmet}")
        self._has_said = True

    def _emit(self, step: int, reason: str) -> None:
        if self._context.rank == 0:
            answer = self._context.plan.recovery.stragglers
            self._context.events.emit("straggler_answered", step=step, answer=answer, reason=reason)


def _why_not_evicted(context: RankContext, rank: int) -> str:
    """Why a slow rank is not evicted; empty if it may be."""
    if not context.plan.sizes:
        return "its node stays: the plan has no other size; train.ranks = [least, most] gives it some"
    if context.node_of(rank) == 0:
        return "its node stays: node 0 cannot be evicted"
    return ""


def _why_not_rebalanced(context: RankContext) -> str:
    """Why the work of this plan is not rebalanced; empty if it may be."""
    mesh = context.plan.mesh
    if mesh.dp_replicate == 1:
        return "work is not rebalanced: only replicas can take different shares, and train.mesh.dp_replicate is 1"
    if mesh.pp > 1:
        return "work is not rebalanced: the schedule of a pipeline has a fixed number of micro-batches"
    if context.plan.averages_rarely:
        return "work is not rebalanced: local_sgd and diloco average replicas with equal weights"
    return ""


class WorkRebalancer:
    """Computes the same shares on every rank, since all know the same times."""

    def __init__(self, context: RankContext, step_rate: StepRate) -> None:
        self._context, self._step_rate = context, step_rate
        self._next: Shares = ()
        mesh = context.plan.mesh
        places = [mesh.coordinates(rank)["dp_replicate"] for rank in range(mesh.world_size)]
        self._replicas = [[rank for rank, at in enumerate(places) if at == place] for place in range(mesh.dp_replicate)]

    def decide(self, progress: TrainingProgress) -> None:
        """Compute new shares, once a window is over, if a rank is or was slow and they are worth it."""
        recent = self._step_rate.recent
        if recent is None or not (self._step_rate.slow or progress.shares):
            return
        mesh, samples = self._context.plan.mesh, self._context.plan.global_batch
        costs = [recent.seconds_per_sample(ranks) for ranks in self._replicas]
        now = progress.shares or even_shares(samples, mesh.dp_replicate)
        self._next = better_shares(costs, now, least=mesh.dp_shard)

    def rebalance(self, progress: TrainingProgress, *, saves: bool) -> bool:
        """Use new shares from the next step on; a deterministic plan waits for a checkpoint. True if shares changed."""
        if not self._next or (self._context.plan.deterministic and not saves):
            return False
        before = progress.shares or even_shares(self._context.plan.global_batch, len(self._next))
        progress.shares, self._next = self._next, ()
        self._step_rate.forget()
        if self._context.rank == 0:
            now, then = _describe_shares(progress.shares), _describe_shares(before)
            reason = f"replicas take {now} samples of a step instead of {then}, in proportion to their speed"
            self._context.events.emit(
                "straggler_answered",
                step=progress.step,
                answer="rebalance",
                reason=reason,
                shares=list(progress.shares),
            )
        return True


def better_shares(costs: Sequence[float], shares: Sequence[int], *, least: int) -> Shares:
    """Shares that finish sooner than `shares` by enough to be used; empty if there are none.

    Args:
        costs: Seconds of each replica for a sample.
        shares: Samples by replica now.
        least: Samples of a replica: each of its shards needs one.
    """
    if min(costs) <= 0:
        return ()
    speed = by_speed([1 / cost for cost in costs], sum(shares), least=least)
    slowest = max(cost * share for cost, share in zip(costs, shares, strict=True))
    return speed if max(c * s for c, s in zip(costs, speed, strict=True)) <= GAIN * slowest else ()


def _describe_shares(shares: Sequence[int]) -> str:
    shown = [str(share) for share in shares[:8]]
    return ", ".join(shown) + (", ..." if len(shares) > 8 else "")
