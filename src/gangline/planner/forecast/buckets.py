"""Buckets of averaged gradients: what they leave exposed, and what the best number of them would. Pure.

Backward takes T and hands out gradients evenly; a link of their own takes A for each of n buckets and W for all their
bytes. They are done when the link waited for the last one, T + A + W / n, or was never idle, T / n + n A + W, whichever
is later. The latter is least at n = sqrt(T / A), where the link decides; else the most buckets with n A + W < T are
best.
"""

from dataclasses import replace
from math import ceil, floor, sqrt

from gangline.planner.forecast.device_speeds import Speeds
from gangline.planner.forecast.traffic import (
    BUCKET_BYTES,
    GRADIENT_BYTES,
    Collective,
    PassLoad,
    num_averaged,
    num_buckets,
)
from gangline.planner.shapes.shape import Shape
from gangline.spec.forecast import GradientBuckets
from gangline.spec.profile import ModelProfile

BACKWARD = 2 / 3
"""Of the work of both passes."""


def gradient_buckets(
    profile: ModelProfile, shape: Shape, load: PassLoad, speeds: Speeds, *, compute_seconds: float | None
) -> GradientBuckets | None:
    """Those of a plan; None: it has no buckets.

    Args:
        profile: Of the model.
        shape: Of the plan.
        load: Of a step.
        speeds: By which messages take their time, where they were measured.
        compute_seconds: Of all passes of a step, the last of which hands out the gradients; None: not known.
    """
    if not (shape.wrapping.is_ddp and shape.traits.has_buckets):
        return None
    whole, given = GRADIENT_BYTES * num_averaged(profile, shape), load.bucket_bytes
    found = GradientBuckets(
        count=num_buckets(profile, shape, load),
        size_bytes=min(given or BUCKET_BYTES, whole),
        is_given=given is not None,
    )
    latency, seconds = (_measured_seconds(speeds, shape, size) for size in (1.0, whole))
    if latency is None or seconds is None or compute_seconds is None or load.compression.kind != "none":
        return found
    backward, transfer = BACKWARD * compute_seconds / load.micro_batches, max(0.0, seconds - latency)
    best = best_count(backward, latency, transfer)
    return replace(
        found,
        latency_seconds=latency,
        exposed_seconds=exposed_seconds(found.count, backward, latency, transfer),
        best_count=best,
        best_exposed_seconds=exposed_seconds(best, backward, latency, transfer),
    )


def exposed_seconds(count: int, backward: float, latency: float, transfer: float) -> float:
    """From the end of backward until `count` equal buckets are averaged."""
    return max(latency + transfer / count, backward / count + count * latency + transfer - backward)


def best_count(backward: float, latency: float, transfer: float) -> int:
    """Buckets that leave least exposed; `latency` is above 0."""
    exact = max(1.0, sqrt(backward / latency), (backward - transfer) / latency)
    return min((floor(exact), ceil(exact)), key=lambda count: exposed_seconds(count, backward, latency, transfer))


def _measured_seconds(speeds: Speeds, shape: Shape, size_bytes: float) -> float | None:
    """Of one average; None: not measured, as of links by their bandwidth alone."""
    message = Collective(
        part="communication", kind="all_reduce", size_bytes=size_bytes, ranks=shape.mesh.dp_replicate, count=1
    )
    return speeds.exchange_seconds(message) if speeds.rates is not None else None
