"""Cost of gradient compression: messages between replicas and the work of compressing. Pure.

PowerSGD and top-k depend on the shape of each parameter and are counted as after the warm-up of the learning rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from gangline.spec.compression import Compression
from gangline.spec.devices import Exchange
from gangline.spec.profile import ParameterShape

_WIDTH = {"none": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 4 * 0.26}
"""Bytes of an entry on DDP's wire; int8 has a scale for every 256 values."""
FACTOR_BYTES, INDEX_BYTES = 4, 4
"""Bytes of a value that PowerSGD or top-k sends, and of the place of one that top-k does."""
SELECT_BYTES = 950
"""Top-k: moved for each entry that is sent, in addition to what every entry costs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressedMessage:
    """One kind of message of a step."""

    kind: Exchange
    size_bytes: float
    """Bytes of all of them together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionWork:
    """Work of one rank in a step: operations that compute little, and what they read and write together."""

    operations: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class _Cost:
    entry_bytes: float
    a_tensor: int = 0
    """Operations for each parameter that is squeezed."""
    a_bucket: int = 0


_COSTS = {
    "fp16": _Cost(16, a_bucket=3),
    "bf16": _Cost(16, a_bucket=3),
    "int8": _Cost(380, a_tensor=4, a_bucket=40),
    "powersgd": _Cost(90, a_tensor=14),
    "topk": _Cost(130, a_tensor=8),
}
"""Operations are those of the code; bytes of an entry are what these operations take by the rates of moves, as seen on
a CPU for models of 0.9, 3.3 and 19 million parameters."""


def messages(
    entries: float, shapes: Sequence[ParameterShape], compression: Compression, *, ranks: int
) -> list[CompressedMessage]:
    """Messages that average the gradients of a step between `ranks` replicas.

    Args:
        entries: Of all gradients on one rank.
        shapes: Of all parameters; needed by `powersgd` and `topk` alone.
        compression: Kind, and what belongs to it.
        ranks: That average.
    """
    if compression.kind == "powersgd":
        left, right = _factors(shapes, compression.rank)
        return [CompressedMessage(kind="all_reduce", size_bytes=FACTOR_BYTES * each) for each in (left, right) if each]
    if compression.kind == "topk":
        chosen = sum(each.count * ceil(compression.ratio * each.rows * each.columns) for each in shapes)
        widths = (FACTOR_BYTES, INDEX_BYTES)
        return [CompressedMessage(kind="all_gather", size_bytes=ranks * width * chosen) for width in widths]
    return [CompressedMessage(kind="all_reduce", size_bytes=_WIDTH[compression.kind] * entries)]


def compression_work(entries: float, tensors: int, compression: Compression, *, buckets: int) -> CompressionWork | None:
    """Work of squeezing `entries` of so many parameters in so many buckets; None: nothing is squeezed."""
    cost = _COSTS.get(compression.kind)
    if cost is None:
        return None
    width = cost.entry_bytes + (SELECT_BYTES * compression.ratio if compression.kind == "topk" else 0)
    operations = max(1, cost.a_tensor * tensors + cost.a_bucket * buckets)
    return CompressionWork(operations=operations, size_bytes=width * entries)


def shard_bytes(compression: Compression, *, averages_rarely: bool = False) -> float:
    """Bytes of an entry while gradients of shards are reduced: torch takes halves there, and nothing else."""
    return 2.0 if compression.kind in ("fp16", "bf16") and not averages_rarely else 4.0


def needs_shapes(compression: Compression) -> bool:
    """Nothing can be said of its messages without the shapes of parameters."""
    return compression.kind in ("powersgd", "topk")


def _factors(shapes: Sequence[ParameterShape], rank: int) -> tuple[int, int]:
    """Entries of both messages; what has no thin factors travels whole in the first."""
    left = right = 0
    for each in shapes:
        thin = min(rank, each.rows, each.columns)
        if 2 * (each.rows + each.columns) * thin < each.rows * each.columns:
            left += each.count * each.rows * thin
            right += each.count * each.columns * thin
        else:
            left += each.count * each.rows * each.columns
    return left, right
