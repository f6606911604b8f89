"""How replicas average their gradients: messages and work of a compression, buckets and what they leave exposed. Pure.

PowerSGD and top-k depend on the shape of each parameter and are counted as after the warm-up of the learning rate.

Buckets: backward takes T and hands out gradients evenly; a link of their own takes A for each of n buckets and W for
all their bytes. They are done when the link waited for the last one, T + A + W / n, or was never idle, T / n + n A + W,
whichever is later. The latter is least at n = sqrt(T / A), where the link decides; else the most buckets with n A + W
below T are best.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, floor, sqrt

from gangline.planner.cost.exchange import Collective, LinkRates
from gangline.spec.compression import Compression
from gangline.spec.devices import Exchange
from gangline.spec.forecast import GradientBuckets
from gangline.spec.profile import ParameterShape

_WIDTH = {"none": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 4 * 0.26}
"""Bytes of an entry on DDP's wire; int8 has a scale for every 256 values."""

FACTOR_BYTES, INDEX_BYTES = 4, 4
"""Bytes of a value that PowerSGD or top-k sends, and of the place of one that top-k does."""

SELECT_BYTES = 950
"""Top-k: moved for each entry that is sent, in addition to what every entry costs."""


_COSTS = {"fp16": (16, 0, 3), "bf16": (16, 0, 3), "int8": (380, 4, 40), "powersgd": (90, 14, 0), "topk": (130, 8, 0)}
"""Bytes of an entry, operations for each parameter that is squeezed, and for each bucket. Operations are those of the
code; the bytes are what they take by the rates of moves, as seen on a CPU for models of 0.9, 3.3 and 19 million
parameters."""


def messages(
    entries: float, shapes: Sequence[ParameterShape], compression: Compression, *, ranks: int
) -> list[tuple[Exchange, float]]:
    """Kinds of message that average the gradients of a step between `ranks` replicas, each with the bytes of all of it.

    `entries` are those of all gradients on one rank; `shapes` of all parameters are needed by `powersgd` and `topk`
    alone.
    """
    if compression.kind == "powersgd":
        left, right = _factors(shapes, compression.rank)
        return [("all_reduce", FACTOR_BYTES * each) for each in (left, right) if each]
    if compression.kind == "topk":
        chosen = sum(shape.count * ceil(compression.ratio * shape.rows * shape.columns) for shape in shapes)
        widths = (FACTOR_BYTES, INDEX_BYTES)
        return [("all_gather", ranks * width * chosen) for width in widths]
    return [("all_reduce", _WIDTH[compression.kind] * entries)]


def compression_work(entries: float, tensors: int, compression: Compression, *, buckets: int) -> tuple[float, float]:
    """Operations, which compute little, of squeezing `entries` of so many parameters in so many buckets, and what they
    read and write together; 0: nothing is squeezed."""
    if compression.kind not in _COSTS:
        return 0.0, 0.0
    entry_bytes, a_tensor, a_bucket = _COSTS[compression.kind]
    width = entry_bytes + (SELECT_BYTES * compression.ratio if compression.kind == "topk" else 0)
    return float(max(1, a_tensor * tensors + a_bucket * buckets)), width * entries


def shard_bytes(compression: Compression, *, averages_rarely: bool = False) -> float:
    """Bytes of an entry while gradients of shards are reduced: torch takes halves there, and nothing else."""
    return 2.0 if compression.kind in ("fp16", "bf16") and not averages_rarely else 4.0


def needs_shapes(compression: Compression) -> bool:
    """Nothing can be said of its messages without the shapes of parameters."""
    return compression.kind in ("powersgd", "topk")


def _factors(shapes: Sequence[ParameterShape], rank: int) -> tuple[int, int]:
    """Entries of both messages; what has no thin factors travels whole in the first."""
    left = right = 0
    for shape in shapes:
        thin = min(rank, shape.rows, shape.columns)
        if 2 * (shape.rows + shape.columns) * thin < shape.rows * shape.columns:
            left += shape.count * shape.rows * thin
            right += shape.count * shape.columns * thin
        else:
            left += shape.count * shape.rows * shape.columns
    return left, right


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
    count, size = bucket_count(whole_bytes, given), min(given or BUCKET_BYTES, whole_bytes)
    found = GradientBuckets(count=count, size_bytes=size, is_given=given is not None)
    latency, whole = (
        seconds and seconds(Collective(part="communication", kind="all_reduce", size_bytes=each, ranks=ranks, count=1))
        for each in (1.0, whole_bytes)
    )
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


def exposed_seconds(count: int, backward: float, latency: float, transfer: float) -> float:
    """Time from the end of backward until `count` equal buckets are averaged."""
    return max(latency + transfer / count, backward / count + count * latency + transfer - backward)


def best_count(backward: float, latency: float, transfer: float) -> int:
    """Buckets that leave least exposed; `latency` is above 0."""
    exact = max(1.0, sqrt(backward / latency), (backward - transfer) / latency)
    return min((floor(exact), ceil(exact)), key=lambda count: exposed_seconds(count, backward, latency, transfer))


BUCKET_BYTES = 25 * 2**20
"""Size of DDP's buckets but the first, where the line leaves them to torch."""


def bucket_count(size_bytes: float, bucket_bytes: int | None) -> int:
    """Buckets of a given size that hold so many bytes; None: of torch's own size."""
    return max(1, ceil(size_bytes / (bucket_bytes or BUCKET_BYTES)))
