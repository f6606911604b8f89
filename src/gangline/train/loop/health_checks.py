"""Reaction to a slow rank, as the plan says: an event, rebalanced work, or a gang without its node.

Every rank comes to the same decision by itself, from the times that all know.
"""

from collections.abc import Mapping, Sequence

from gangline.keeper.ipc.requests import EvictionRequest, request_eviction
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.sample_order import Shares, even_shares, rank_spans
from gangline.train.loop.step_rate import StepRate
from gangline.train.loop.straggler import Straggler
from gangline.train.runtime.context import RankContext


class HealthChecks:
    """A rank's part; all ranks make the same calls in the same order."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._pace = StepRate(context)
        self._dealer: WorkRebalancer | None = None
        self._is_dealt = False
        """Anew, since the step that is reported next."""
        self._hindrance = ""
        self._evicts = context.plan.recovery.stragglers == "evict"
        if context.plan.recovery.stragglers == "rebalance":
            self._hindrance = _why_not_dealt(context)
            self._dealer = None if self._hindrance else WorkRebalancer(context, self._pace)

    def step_done(self, progress: TrainingProgress, phases: Mapping[str, float], *, disturbed: bool) -> None:
        """Take in the step that is done, in which this rank's seconds went into `phases`."""
        if self._is_dealt:
            self._is_dealt = False
            return
        plan, data = self._context.plan, self._context.data_rank
        start, stop = rank_spans(plan.global_batch, ranks=self._context.data_ranks, shares=progress.shares)[data]
        if not self._pace.step_done(progress.step, phases, samples=stop - start, disturbed=disturbed):
            return
        if self._dealer is not None:
            self._dealer.think(progress)
        elif self._evicts and self._pace.slow:
            self._evicts = False
            self._evict(progress.step, max(self._pace.slow.values(), key=lambda each: each.seconds))
        elif self._hindrance and self._pace.slow:
            self._say(progress.step, self._hindrance)
            self._hindrance = ""

    def between_steps(self, progress: TrainingProgress, *, saves: bool) -> None:
        """Before the step that was done is saved, if it is."""
        if self._dealer is not None:
            self._is_dealt = self._dealer.deal(progress, saves=saves)

    def resumed(self, progress: TrainingProgress) -> None:
        """Another number of replicas shares evenly, until it is known which are slow."""
        if len(progress.shares) != self._context.plan.mesh.dp_replicate or self._dealer is None:
            progress.shares = ()

    def close(self) -> None:
        self._pace.close()

    def _evict(self, step: int, slow: Straggler) -> None:
        """Once a generation; whether it comes about is the keeper's to say."""
        context, why = self._context, _why_not_evicted(self._context, slow.rank)
        reason = f"rank {slow.rank} takes {slow.ratio:.2f} times as long as the others"
        if context.rank == 0 and context.out is not None and not why:
            wish = EvictionRequest(generation=context.generation, rank=slow.rank, reason=reason)
            request_eviction(context.out.parent, wish)
        self._say(step, f"{reason}; {why or 'its node is to leave, the others go on from their checkpoint'}")

    def _say(self, step: int, reason: str) -> None:
        if self._context.rank == 0:
            answer = self._context.plan.recovery.stragglers
            self._context.events.emit("straggler_answered", step=step, answer=answer, reason=reason)


def _why_not_evicted(context: RankContext, rank: int) -> str:
    """Why a gang stays together with a slow rank; empty: it may part."""
    if not context.plan.sizes:
        return "its node stays: the plan is ready for no other size, as it is with train.ranks = [least, most]"
    if context.node_of(rank) == 0:
        return "its node stays: it leads the gang"
    return ""


def _why_not_dealt(context: RankContext) -> str:
    """Why the work of this plan stays even; empty: it need not."""
    mesh = context.plan.mesh
    if mesh.dp_replicate == 1:
        return "the work stays even: only replicas can differ, and train.mesh.dp_replicate is 1"
    if mesh.pp > 1:
        return "the work stays even: a pipeline's schedule is made for one number of micro-batches"
    if context.plan.averages_rarely:
        return "the work stays even: replicas that drift count alike in their average"
    return ""


GAIN = 0.95
"""A new deal is worth its trouble if the slowest replica then needs at most so much of its time."""


class WorkRebalancer:
    """Comes to the same shares on every rank, since all know the same times."""

    def __init__(self, context: RankContext, pace: StepRate) -> None:
        self._context, self._pace = context, pace
        self._next: Shares = ()
        mesh = context.plan.mesh
        places = [mesh.coordinates(rank)["dp_replicate"] for rank in range(mesh.world_size)]
        self._replicas = [[rank for rank, at in enumerate(places) if at == place] for place in range(mesh.dp_replicate)]

    def think(self, progress: TrainingProgress) -> None:
        """After a window: deal anew, if somebody is slow, or was, and it is worth it."""
        recent = self._pace.recent
        if recent is None or not (self._pace.slow or progress.shares):
            return
        mesh, samples = self._context.plan.mesh, self._context.plan.global_batch
        costs = [recent.seconds_per_sample(ranks) for ranks in self._replicas]
        now = progress.shares or even_shares(samples, mesh.dp_replicate)
        self._next = better_shares(costs, now, least=mesh.dp_shard)

    def deal(self, progress: TrainingProgress, *, saves: bool) -> bool:
        """Between two steps: where a resumed run must repeat every step, a new deal begins with a checkpoint."""
        if not self._next or (self._context.plan.deterministic and not saves):
            return False
        before = progress.shares or even_shares(self._context.plan.global_batch, len(self._next))
        progress.shares, self._next = self._next, ()
        self._pace.forget()
        if self._context.rank == 0:
            now, then = _describe_shares(progress.shares), _describe_shares(before)
            words = f"replicas take {now} samples of a step instead of {then}, by speed"
            self._context.events.emit(
                "straggler_answered", step=progress.step, answer="rebalance", reason=words, shares=list(progress.shares)
            )
        return True


def better_shares(costs: Sequence[float], shares: Sequence[int], *, least: int) -> Shares:
    """Samples by replica that are sooner done than `shares`; empty: none are, by enough.

    Args:
        costs: Seconds that a sample takes each replica.
        shares: As they are dealt now.
        least: Of one replica: each of its shards needs a sample.
    """
    if min(costs) <= 0:
        return ()
    found = by_speed([1 / each for each in costs], sum(shares), least=least)
    slowest = max(cost * share for cost, share in zip(costs, shares, strict=True))
    return found if max(c * s for c, s in zip(costs, found, strict=True)) <= GAIN * slowest else ()


def by_speed(speeds: Sequence[float], samples: int, *, least: int) -> Shares:
    """`samples` in proportion to `speeds`, each at least `least`: one by one to whoever would be done first with it."""
    shares = [least] * len(speeds)
    for _ in range(samples - sum(shares)):
        place = min(range(len(speeds)), key=lambda each: (shares[each] + 1) / speeds[each])
        shares[place] += 1
    return tuple(shares)


def _describe_shares(shares: Sequence[int]) -> str:
    shown = [str(each) for each in shares[:8]]
    return ", ".join(shown) + (", ..." if len(shares) > 8 else "")
