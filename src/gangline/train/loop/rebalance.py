"""Uneven work: replicas take samples of a step by their measured speed, so that all are done at once.

Each loss is a sum with its weight, so the mean over the step is the same however its samples are dealt. Inside a
replica nothing changes: its shards meet in every pass and have alike many.
"""

from collections.abc import Sequence

from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.sample_order import Shares, even_shares
from gangline.train.loop.step_rate import StepRate
from gangline.train.runtime.context import RankContext

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
