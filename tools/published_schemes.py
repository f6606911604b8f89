"""Published ways to deal matrices to ranks, and what a step takes with them: the tables compare plans with these."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, prod

from gangline.optim.plan.buckets import GradientBuffer
from gangline.optim.plan.costs import DeviceCurve, RuleSpec, Shape
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.groups import HostExchangeRate
from gangline.optim.plan.owners import loads_of
from gangline.units import Elements, Seconds

PARAMETER_BYTES = 2
"""Bytes of a parameter that the scheme of January 2026 gathers: bf16."""


def round_robin(count: int, ranks: int) -> list[int]:
    """Owner of each of `count` matrices in model order, one after the other."""
    return [at % ranks for at in range(count)]


def ping_pong(sizes: Sequence[float], ranks: int) -> list[int]:
    """Owner by size, smallest first, in rows that run forth and back (Megatron-LM pull request 2241)."""
    owners = [0] * len(sizes)
    for place, at in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        row, column = divmod(place, ranks)
        owners[at] = ranks - 1 - column if row % 2 else column
    return owners


def layerwise_2026_01(parameters: Sequence[Elements], ranks: int) -> list[int]:
    """Owner of each parameter, AdamW's too: NVIDIA's `layerwise_optimizer` of January 2026."""
    return ping_pong([each.value for each in parameters], ranks)


def equal_cut(bucket: GradientBuffer, ranks: int) -> list[int]:
    """`asc`: the rank in whose equal slice of the buffer a matrix starts."""
    total = sum(bucket.sizes)
    return [start * ranks // total for start in bucket.boundaries[:-1]]


def contiguous(costs: Sequence[float], ranks: int) -> list[int]:
    """Owners by the cut of one buffer into slices with the smallest largest cost."""
    sums = sorted({total for start in range(len(costs)) for total in accumulate(costs[start:])})
    least = bisect_left(sums, True, key=lambda capacity: _slice_count(costs, capacity) <= ranks)
    return _slices(costs, sums[least])


def _slice_count(costs: Sequence[float], capacity: float) -> float:
    """Slices of at most `capacity`; infinite: one cost is larger."""
    return _slices(costs, capacity)[-1] + 1 if max(costs) <= capacity else inf


def _slices(costs: Sequence[float], capacity: float) -> list[int]:
    """Slice of each cost when every slice is filled up to `capacity`."""
    owners, filled, rank = [], 0.0, 0
    for cost in costs:
        if filled + cost > capacity:
            filled, rank = 0, rank + 1
        filled += cost
        owners.append(rank)
    return owners


def synchronous_seconds(
    shapes: Sequence[Shape], rule: RuleSpec, *, hosts: int, device: DeviceCurve, exchange: HostExchangeRate
) -> Seconds:
    """SC: every rank gathers every matrix from its `hosts` and repeats the whole update."""
    return Seconds(sum(_gathered_update(shape, rule, hosts, device, exchange) for shape in shapes))


def _gathered_update(
    shape: Shape, rule: RuleSpec, hosts: int, device: DeviceCurve, exchange: HostExchangeRate
) -> float:
    size = 4 * prod(shape) * (hosts - 1) / hosts
    return device.seconds(rule, shape).value + size / exchange.bytes_per_second + exchange.latency_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerwiseTimes:
    """Seconds of a step of the `layerwise_optimizer` of January 2026."""

    compute_seconds: float
    """Time of the busiest rank, gathers over its hosts included."""
    step_seconds: float
    """Time with the exposed gather of updated parameters."""


def layerwise_seconds(
    parameters: Mapping[str, tuple[int, ...]], matrices: Mapping[str, Shape], rule: RuleSpec, *, ranks: int, hosts: int,
    device: DeviceCurve, exchange: HostExchangeRate, sync: SyncRate,
) -> LayerwiseTimes:  # fmt: skip
    """A step that deals all parameters to `ranks`.

    Args:
        parameters: Shape of every parameter by name, in model order.
        matrices: Those among them that the rule updates.
        rule: Their rule.
        ranks: Owners.
        hosts: That every matrix is cut over.
        device: Of one rank.
        exchange: Among hosts.
        sync: Among ranks.
    """
    owners = layerwise_2026_01([Elements(prod(shape)) for shape in parameters.values()], ranks)
    seconds = [
        _gathered_update(matrices[name], rule, hosts, device, exchange) if name in matrices else 0.0
        for name in parameters
    ]
    compute = max(loads_of(owners, seconds, ranks))
    elements = sum(map(prod, parameters.values()))
    return LayerwiseTimes(
        compute_seconds=compute, step_seconds=compute + PARAMETER_BYTES * elements / hosts / sync.bytes_per_second
    )


def iteration_speed_up(*, model_seconds: float, before_seconds: float, after_seconds: float) -> float:
    """Speed-up of whole iterations: the same forward and backward with a faster optimizer step."""
    return (model_seconds + before_seconds) / (model_seconds + after_seconds)


def model_seconds(parameters: int, tokens: int, *, ranks: int, flops_per_second: float = 400e12) -> float:
    """Forward and backward of a dense model: 6 operations per parameter and token."""
    return 6 * parameters * tokens / (ranks * flops_per_second)
