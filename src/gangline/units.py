"""Quantities as people read them. Pure; one spelling for terminal, report and comments."""

import itertools
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self


@dataclass(frozen=True, slots=True, eq=False)
class _Amount:
    """A number of one kind: adding or comparing two kinds is a type error, and a TypeError."""

    value: float

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + self._same(other))

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.value - self._same(other))

    def __mul__(self, factor: float) -> Self:
        return type(self)(self.value * factor)

    __rmul__ = __mul__

    def __truediv__(self, other: Self) -> float:
        """Ratio of two amounts of one kind."""
        return self.value / self._same(other)

    def __eq__(self, other: object) -> bool:
        return self.value == self._same(other)

    def __lt__(self, other: Self) -> bool:
        return self.value < self._same(other)

    def __le__(self, other: Self) -> bool:
        return self.value <= self._same(other)

    def __hash__(self) -> int:
        return hash((type(self), self.value))

    def _same(self, other: object) -> float:
        if type(other) is type(self):
            return other.value
        raise TypeError(f"wanted {type(self).__name__}, found {type(other).__name__}: kinds of amounts do not mix")


class Bytes(_Amount):
    """What memory holds and links carry."""

    __slots__ = ()


class Elements(_Amount):
    """Entries of tensors, of any dtype."""

    __slots__ = ()


class Flops(_Amount):
    """Operations in floating point."""

    __slots__ = ()


class Seconds(_Amount):
    """Time."""

    __slots__ = ()


def format_bytes(size_bytes: float) -> str:
    """`61 kB`, `3.5 MB`: powers of 1,000, two significant digits at most."""
    size, unit = _scaled(size_bytes, ("B", "kB", "MB", "GB", "TB"))
    return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 10 else f"{size:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """`0.4 s`, `15 s`, `1 min 14 s`, `3 h 20 min`."""
    if seconds < 10 or not math.isfinite(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_step(seconds: float) -> str:
    """`125 ms`, `3.4 ms` or `0.024 ms` below a second: steps differ where whole seconds would not show it."""
    if not seconds < 1:
        return format_seconds(seconds)
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 9.95 or milliseconds <= 0 else f"{milliseconds:.2g} ms"


def format_count(value: float) -> str:
    """`875 k`, `9.1 k`, `1.2 M`."""
    size, unit = _scaled(value, ("", " k", " M", " G", " T"))
    return f"{size:.0f}{unit}" if unit == "" or abs(size) >= 100 else f"{size:.1f}{unit}"


def _scaled(value: float, units: tuple[str, ...]) -> tuple[float, str]:
    """Value and unit: below 1,000 of the first unit that allows it, each a thousand of the one before."""
    size = float(value)
    for unit in units[:-1]:
        if abs(size) < 1000:
            return size, unit
        size /= 1000
    return size, units[-1]


def format_number(value: float) -> str:
    """Four significant digits, plain where that is short."""
    return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.1e}"


_MARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 12) -> str:
    """The course of `values` in `width` marks, each the mean of its share."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    count = min(width, len(finite))
    edges = [len(finite) * i // count for i in range(count + 1)]
    halves = [math.fsum(value / 2 / (b - a) for value in finite[a:b]) for a, b in itertools.pairwise(edges)]
    low, high = min(halves), max(halves)  # of means, whose sums and differences may be larger than any float
    span = (high - low) or 1.0
    return "".join(_MARKS[round((half - low) / span * (len(_MARKS) - 1))] for half in halves)


def counted(count: int, noun: str) -> str:
    """`1 shard`, `412 shards`, `12,410,332 samples`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def now() -> str:
    """UTC to the millisecond, ISO 8601 with `Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str | None) -> datetime | None:
    """The time that `text` names; None: it names none. Without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
