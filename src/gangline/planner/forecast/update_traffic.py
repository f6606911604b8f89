"""Updates of matrices on their way from owners to copies, and how much of that a forward pass hides. Pure.

A second of computing hides one exchange: a forward pass has for updates what the site's share of computing that hides
communication leaves of it, after gradients and shards.
"""

from collections.abc import Callable
from math import floor

from gangline.planner.forecast.exchange import Collective
from gangline.planner.forecast.widths import FORWARD
from gangline.spec.forecast import UpdateTraffic
from gangline.spec.plan import Device
from gangline.spec.profile import MatrixWork
from gangline.spec.strategies import Wrapping
from gangline.spec.update_arrival import exposed_seconds


def may_hide(work: MatrixWork | None, wrapping: Wrapping, device: Device) -> bool:
    """Blocks of the next forward pass wait for updates one by one; under FSDP2 on a GPU they all wait at its start."""
    return work is not None and work.overlaps and not (device == "cuda" and wrapping.is_composable)


def first_forward(computed: float, micro_batches: int, products: float) -> float:
    """Seconds of the first forward pass of a step that computes so long; `products` with those made again, over 1."""
    return FORWARD * computed / products / micro_batches


def what_hides(forward: float, *, computed: float, exchanged: float, overlap: float) -> float:
    """Seconds of a forward pass that hide updates: the site's share, as far as what is exchanged during
    all passes leaves of it."""
    return min(overlap * forward, max(0.0, overlap * computed - exchanged))


def update_traffic(
    sent: Collective, work: MatrixWork, seconds_of: Callable[[Collective], float | None], *, forward_seconds: float,
    hides: float,
) -> UpdateTraffic | None:  # fmt: skip
    """What ranks wait for; None: how long messages take is not known.

    Args:
        sent: The buckets, as of `published_updates`.
        work: Of the rule.
        seconds_of: Of one message.
        forward_seconds: Of the blocks of a pass.
        hides: Of these, what hides updates.
    """
    each = seconds_of(sent)
    if each is None:
        return None
    buckets, blocks = round(sent.count), max(1, work.blocks)
    before = [floor(blocks * at / buckets) / blocks for at in range(buckets)]
    seconds = [each] * buckets
    return UpdateTraffic(
        buckets=buckets, size_bytes=sent.size_bytes, seconds=each * buckets, hiding_seconds=hides,
        exposed_seconds=exposed_seconds(seconds, before, hides),
        least_exposed_seconds=exposed_seconds(seconds, before, forward_seconds),
    )  # fmt: skip
