"""Buckets of averaged gradients: what they leave exposed, and what the best number of them would. Pure.

Backward takes T and hands out gradients evenly; a link of their own takes A for each of n buckets and W for all their
bytes. They are done when the link waited for the last one, T + A + W / n, or was never idle, T / n + n A + W, whichever
is later. The latter is least at n = sqrt(T / A), where the link decides; else the most buckets with n A + W < T are
best.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, floor, sqrt

from gangline.planner.forecast.device_speeds import Speeds
from gangline.planner.forecast.exchange import Collective, LinkRates
from gangline.planner.forecast.traffic import (
    BUCKET_BYTES,
    PassLoad,
    bucket_count,
    num_averaged,
)
from gangline.planner.forecast.widths import BACKWARD, GRADIENT_BYTES
from gangline.planner.shapes.shape import Shape
from gangline.spec.forecast import GradientBuckets
from gangline.spec.profile import ModelProfile


def gradient_buckets(
    profile: ModelProfile, shape: Shape, load: PassLoad, speeds: Speeds, *, compute_seconds: float | None
) -> GradientBuckets | None:
    """Those of a plan; None: it has no buckets.

    Args:
        profile: Of the model.
        shape: Of the plan.
        load: Of a step.
        speeds: By which messages take their time, where they were measured or their latency is given.
        compute_seconds: Of all passes of a step, the last of which hands out the gradients; None: not known.
    """
    if not (shape.wrapping.is_ddp and shape.traits.has_buckets):
        return None
    ranks = shape.mesh.dp_replicate
    seconds = speeds.exchange_seconds if speeds.rates else by_latency(speeds.links, ranks)
    return exposed_buckets(
        GRADIENT_BYTES * num_averaged(profile, shape), load.bucket_bytes, ranks=ranks,
        seconds=None if load.compression.kind != "none" or compute_seconds is None else seconds,
        backward=BACKWARD * (compute_seconds or 0.0) / load.micro_batches,
        latency_origin=speeds.latency_origin,
    )  # fmt: skip


MessageSeconds = Callable[[Collective], float | None]
"""Seconds of one message; None: not known."""


def by_latency(links: LinkRates | None, ranks: int) -> MessageSeconds | None:
    """Seconds of messages between so many ranks; None: no latency is given, so that more messages cost nothing."""
    return links.seconds if links and links.latency_seconds(ranks) else None


def exposed_buckets(
    whole_bytes: float, given: int | None, *, ranks: int, seconds: MessageSeconds | None, backward: float,
    latency_origin: str,
) -> GradientBuckets:  # fmt: skip
    """Buckets of so many bytes, of a given size or of torch's own; what they leave exposed where `seconds` says it.

    Args:
        backward: Seconds of the pass that hands out the gradients.
        latency_origin: Of `seconds`: `measured`, `given`, `assumed`.
    """
    count = bucket_count(whole_bytes, given)
    size = min(given or BUCKET_BYTES, whole_bytes)
    found = GradientBuckets(count=count, size_bytes=size, is_given=given is not None)
    latency, whole = (seconds and seconds(_average(size, ranks)) for size in (1.0, whole_bytes))
    if latency is None or whole is None:
        return found
    transfer = max(0.0, whole - latency)
    best = best_count(backward, latency, transfer)
    return replace(
        found,
        latency_seconds=latency,
        latency_origin=latency_origin,
        exposed_seconds=exposed_seconds(count, backward, latency, transfer),
        best_count=best,
        best_exposed_seconds=exposed_seconds(best, backward, latency, transfer),
    )


def _average(size_bytes: float, ranks: int) -> Collective:
    return Collective(part="communication", kind="all_reduce", size_bytes=size_bytes, ranks=ranks, count=1)


def exposed_seconds(count: int, backward: float, latency: float, transfer: float) -> float:
    """Time from the end of backward until `count` equal buckets are averaged."""
    return max(latency + transfer / count, backward / count + count * latency + transfer - backward)


def best_count(backward: float, latency: float, transfer: float) -> int:
    """Buckets that leave least exposed; `latency` is above 0."""
    exact = max(1.0, sqrt(backward / latency), (backward - transfer) / latency)
    return min((floor(exact), ceil(exact)), key=lambda count: exposed_seconds(count, backward, latency, transfer))
