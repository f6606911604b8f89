"""How gradients of buckets reach owners and updates return: contiguous, permuted, or owner by owner. Pure.

G1 `contiguous` keeps model order and cuts uneven slices, one grouped operation per rank. G2 `permuted` orders the
buffer by owner, in equal padded shards: one native collective. G3 `owner` takes any map, one operation per matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gangline.errors import ConfigError
from gangline.optim.plan.buckets import GradientBuffer, alpha_greedy
from gangline.optim.plan.owners import WorkItem, balance_ratio, largest_first, loads_of, owner_map
from gangline.spec.config.matrix_options import GeometryChoice
from gangline.units import Bytes

Geometry = Literal["contiguous", "permuted", "owner"]
MOST_PADDING = 1.3
"""Limit of a permuted bucket: elements sent over those that it holds."""
_PREFERRED: tuple[Geometry, ...] = ("permuted", "owner", "contiguous")


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncRate:
    """What a collective of data-parallel ranks takes; the defaults are assumptions, not measurements."""

    bytes_per_second: float = 45e9
    """Bandwidth of one rank's network."""
    latency_seconds: float = 20e-6
    """Latency of each operation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketPlan:
    """Geometry of one bucket."""

    kind: Geometry
    places: tuple[int, ...]
    """Places of its matrices in model order, in the order of the buffer."""
    owners: tuple[int, ...]
    """Rank of each."""
    shard: int
    """Elements of the shards of a permuted bucket, 0 for the others."""
    operations: int
    """Number of operations in one direction."""
    padded: float
    """Elements sent, over those that it holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeometryPlan:
    """Geometry of all buckets, and what it costs."""

    buckets: tuple[BucketPlan, ...]
    owners: tuple[int, ...]
    """Rank of each matrix in model order."""
    ratio: float
    """Largest load of compute over the mean."""
    price: float
    """Modelled time of a synchronization over that of an ideal ring."""
    objective: float
    """J: alpha times ratio and 1 - alpha times price."""
    seconds: float
    """Time of the most loaded rank, and of one synchronization: what ties are decided by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeometryProblem:
    """What is to be owned, and by how many."""

    items: Sequence[WorkItem]
    """Items in model order, costs in seconds."""
    buckets: Sequence[GradientBuffer]
    ranks: int
    alpha: float = 1.0
    """Weight of balance against synchronization."""
    memory: Bytes | None = None
    """Owner bytes of a rank at most."""
    rate: SyncRate = SyncRate()
    element_bytes: float = 4.0
    """Bytes of the gradients that travel and that one rank sends, for each element of a whole matrix."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha is from 0 to 1, found {self.alpha}")


def choose_geometry(problem: GeometryProblem, choice: GeometryChoice = "auto") -> GeometryPlan:
    """The candidate with the least J; ties: the faster, then G2, G3, G1.

    Raises:
        ConfigError: No map of that geometry keeps within the owner memory, or `permuted` would pad too much.
    """
    plans, refused = [], None
    for kind in _PREFERRED:
        if choice in ("auto", kind):
            try:
                plans += [plan for plan in _CANDIDATES[kind](problem) if keeps_memory(problem, plan)]
            except ConfigError as error:  # another geometry may keep within it
                refused = error
    if not plans:
        raise refused or ConfigError(
            f"no plan of geometry {choice!r} on {problem.ranks} ranks keeps within owner_memory_bytes and pads less"
            f" than {MOST_PADDING:.1f} times; use geometry = 'auto' or 'owner'"
        )
    return min(plans, key=lambda geometry_plan: (round(geometry_plan.objective, 9), round(geometry_plan.seconds, 9)))


def keeps_memory(problem: GeometryProblem, plan: GeometryPlan) -> bool:
    """Does no owner hold more than the limit?"""
    held = loads_of(plan.owners, [item.owner_bytes.value for item in problem.items], problem.ranks)
    return problem.memory is None or max(held) <= problem.memory.value


def _contiguous(problem: GeometryProblem) -> list[GeometryPlan]:
    """Geometry by the paper's cuts, of elements and of costs in picoseconds."""
    by_cost = [[1 + int(1e12 * problem.items[at].cost.value) for at in bucket.places] for bucket in problem.buckets]
    geometry_plans = []
    for sizes in ([bucket.sizes for bucket in problem.buckets], by_cost):
        sliced = alpha_greedy(sizes, problem.ranks, problem.alpha)
        plans = [
            _bucket("contiguous", bucket, owners, problem.ranks)
            for bucket, owners in zip(problem.buckets, sliced, strict=True)
        ]
        geometry_plans.append(_priced(problem, plans))
    return geometry_plans


def _owner(problem: GeometryProblem) -> list[GeometryPlan]:
    return [owner_by_owner(problem, owner_map(problem.items, problem.ranks, memory=problem.memory).owners)]


def owner_by_owner(problem: GeometryProblem, owners: Sequence[int]) -> GeometryPlan:
    """G3 of any map: `owners` has the rank of each item in model order."""
    plans = [
        _bucket("owner", bucket, [owners[at] for at in bucket.places], problem.ranks) for bucket in problem.buckets
    ]
    return _priced(problem, plans)


def _permuted(problem: GeometryProblem) -> list[GeometryPlan]:
    """Largest bucket first, its items by LPT onto the loads of those before; none: a bucket would pad too much."""
    loads = [0.0] * problem.ranks
    plans: dict[int, BucketPlan] = {}
    for at in sorted(range(len(problem.buckets)), key=lambda at: -sum(problem.buckets[at].sizes)):
        bucket = problem.buckets[at]
        owners = _within_shards(problem, bucket, loads)
        if owners is None:
            return []
        for place, owner in zip(bucket.places, owners, strict=True):
            loads[owner] += problem.items[place].cost.value
        plans[at] = _bucket("permuted", bucket, owners, problem.ranks)
    return [_priced(problem, [plans[at] for at in range(len(problem.buckets))])]


def _within_shards(problem: GeometryProblem, bucket: GradientBuffer, loads: Sequence[float]) -> list[int] | None:
    """Owners of one bucket, no shard above what padding allows; None: there are none."""
    cap = Bytes(MOST_PADDING * sum(bucket.sizes) / problem.ranks * problem.element_bytes)
    held = [Bytes(size * problem.element_bytes) for size in bucket.sizes]
    if max(held) > cap:
        return None
    items = [replace(problem.items[at], owner_bytes=size) for at, size in zip(bucket.places, held, strict=True)]
    try:
        return largest_first(items, problem.ranks, memory=cap, start=loads)
    except ConfigError:
        return None


_CANDIDATES = {"contiguous": _contiguous, "permuted": _permuted, "owner": _owner}


def _bucket(kind: Geometry, bucket: GradientBuffer, owners: Sequence[int], ranks: int) -> BucketPlan:
    largest = int(max(loads_of(owners, bucket.sizes, ranks)))
    is_padded = kind == "permuted"
    return BucketPlan(
        kind=kind, places=bucket.places, owners=tuple(owners), shard=largest if is_padded else 0,
        operations={"contiguous": ranks, "permuted": 1, "owner": len(bucket.places)}[kind],
        padded=ranks * largest / sum(bucket.sizes) if is_padded else 1.0,
    )  # fmt: skip


def _priced(problem: GeometryProblem, plans: Sequence[BucketPlan]) -> GeometryPlan:
    owners = [0] * len(problem.items)
    ring = ideal = 0.0
    for bucket, plan in zip(problem.buckets, plans, strict=True):
        for place, owner in zip(plan.places, plan.owners, strict=True):
            owners[place] = owner
        size = sum(bucket.sizes) * problem.element_bytes * (problem.ranks - 1) / problem.ranks
        seconds = size / problem.rate.bytes_per_second
        ideal += seconds + problem.rate.latency_seconds
        ring += seconds * plan.padded + plan.operations * problem.rate.latency_seconds
    loads = loads_of(owners, [item.cost.value for item in problem.items], problem.ranks)
    ratio, price = balance_ratio(loads), ring / ideal if ideal else 1.0
    return GeometryPlan(
        buckets=tuple(plans), owners=tuple(owners), ratio=ratio, price=price,
        objective=problem.alpha * ratio + (1 - problem.alpha) * price, seconds=max(loads) + ring,
    )  # fmt: skip
