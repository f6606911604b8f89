"""The matrices that an update rule sees: whole parameters, or fragments of fused ones. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from gangline.errors import ConfigError
from gangline.spec.config.matrix_options import SplitKind
from gangline.units import Bytes, Elements

RowRanges = tuple[tuple[int, int], ...]
"""Half-open ranges of stored rows, in the order in which the fragment has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixStorage:
    """Where the parameter of a matrix is; neither field set: whole on every rank."""

    flat_range: tuple[int, int] | None = None
    """Elements of a flat buffer."""
    axes: tuple[tuple[str, int | None], ...] = ()
    """Mesh axis to the dim that it shards; None: it replicates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogicalMatrix:
    """One matrix of an update rule.

    Raises:
        ConfigError: Its shape is not two positive sides, or its rows are not as many as the shape says.
    """

    fqn: str
    fragment: str = ""
    """`gate`, `q`, `expert.7`; empty: the whole parameter."""
    shape: tuple[int, int]
    """Rows and columns of the whole matrix, whatever a rank stores of it."""
    dtype: str = "float32"
    storage: MatrixStorage = MatrixStorage()
    rows: RowRanges = ()
    """Rows of the stored parameter; empty: all."""

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise ConfigError(f"{self.fqn}: a matrix has two sides of 1 or more, found {self.shape}; give a split rule")
        if self.rows and sum(stop - start for start, stop in self.rows) != self.shape[0]:
            raise ConfigError(f"{self.fqn} {self.fragment}: wanted {self.shape[0]} rows, found {self.rows}")

    @property
    def key(self) -> tuple[str, str]:
        """What every sort ends in: the same order on all ranks."""
        return self.fqn, self.fragment

    @property
    def elements(self) -> Elements:
        """Elements of the whole matrix."""
        return Elements(prod(self.shape))

    def size(self, element_bytes: int) -> Bytes:
        """Size of the whole matrix where an element has so many bytes."""
        return Bytes(prod(self.shape) * element_bytes)

    @property
    def is_contiguous(self) -> bool:
        """Are its stored rows one range?"""
        return len(self.rows) <= 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FragmentSplit:
    """How a fused parameter falls into matrices."""

    kind: SplitKind = "none"
    heads: int = 0
    """Number of query heads; of `qkv` and `qkv_by_group` alone, as the two below."""
    kv_heads: int = 0
    head_dim: int = 0


def fragments(
    fqn: str,
    shape: tuple[int, ...],
    split: FragmentSplit,
    *,
    dtype: str = "float32",
    storage: MatrixStorage | None = None,
) -> tuple[LogicalMatrix, ...]:
    """Matrices of one parameter.

    Args:
        fqn: Name of the parameter.
        shape: Full shape; a `stack` has three dims, its rows are those of all layers of the stack in order.
        split: Its rule.
        dtype: Of its gradient.
        storage: Of the parameter.

    Raises:
        ConfigError: The shape does not fit the rule.
    """
    if len(shape) != (3 if split.kind == "stack" else 2):
        raise ConfigError(
            f"{fqn}: split {split.kind!r} does not fit shape {shape}; use `stack` for 3 dims, 2 otherwise"
        )
    where = storage or MatrixStorage()
    if split.kind == "none":
        return (LogicalMatrix(fqn=fqn, shape=(shape[0], shape[1]), dtype=dtype, storage=where),)
    parts = _ROWS[split.kind](fqn, shape, split)
    return tuple(
        LogicalMatrix(
            fqn=fqn, fragment=name, shape=(sum(stop - start for start, stop in rows), shape[-1]), dtype=dtype,
            storage=where, rows=rows,
        )
        for name, rows in parts.items()
    )  # fmt: skip


def _halves(fqn: str, shape: tuple[int, ...], _: FragmentSplit) -> dict[str, RowRanges]:
    half = _half(fqn, shape)
    return {"gate": ((0, half),), "up": ((half, 2 * half),)}


def _alternating(fqn: str, shape: tuple[int, ...], _: FragmentSplit) -> dict[str, RowRanges]:
    half = _half(fqn, shape)
    return {
        name: tuple((2 * row + at, 2 * row + at + 1) for row in range(half)) for at, name in enumerate(("gate", "up"))
    }


def _half(fqn: str, shape: tuple[int, ...]) -> int:
    if shape[0] % 2:
        raise ConfigError(f"{fqn}: gate and up have as many rows each, found {shape[0]} in all")
    return shape[0] // 2


def _qkv(fqn: str, shape: tuple[int, ...], split: FragmentSplit) -> dict[str, RowRanges]:
    _check_heads(fqn, shape, split)
    ends = accumulate((split.heads, split.kv_heads, split.kv_heads), initial=0)
    return {
        name: ((start * split.head_dim, stop * split.head_dim),)
        for name, (start, stop) in zip("qkv", pairwise(ends), strict=True)
    }


def _qkv_by_group(fqn: str, shape: tuple[int, ...], split: FragmentSplit) -> dict[str, RowRanges]:
    """Each group of heads holds its queries, then its key, then its value."""
    _check_heads(fqn, shape, split)
    queries = split.heads // split.kv_heads
    group, width = (queries + 2) * split.head_dim, split.head_dim
    starts = [at * group for at in range(split.kv_heads)]
    return {
        "q": tuple((start, start + queries * width) for start in starts),
        "k": tuple((start + queries * width, start + (queries + 1) * width) for start in starts),
        "v": tuple((start + (queries + 1) * width, start + group) for start in starts),
    }


def _check_heads(fqn: str, shape: tuple[int, ...], split: FragmentSplit) -> None:
    rows = (split.heads + 2 * split.kv_heads) * split.head_dim
    if min(split.heads, split.kv_heads, split.head_dim) < 1 or rows != shape[0] or split.heads % split.kv_heads:
        raise ConfigError(
            f"{fqn}: {split.heads} heads and {split.kv_heads} key-value heads of {split.head_dim} are {rows} rows, "
            f"found {shape[0]}; key-value heads divide the heads"
        )


def _stack(_: str, shape: tuple[int, ...], __: FragmentSplit) -> dict[str, RowRanges]:
    return {f"expert.{at}": ((at * shape[1], (at + 1) * shape[1]),) for at in range(shape[0])}


_ROWS: dict[str, Callable[[str, tuple[int, ...], FragmentSplit], dict[str, RowRanges]]] = {
    "gate_up": _halves,
    "gate_up_interleaved": _alternating,
    "qkv": _qkv,
    "qkv_by_group": _qkv_by_group,
    "stack": _stack,
}
