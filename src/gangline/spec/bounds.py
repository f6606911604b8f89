"""Bounds of numbers, next to the key that has them: `steps: Annotated[int, Bound(least=1)]`.

The loader of a file, the ranks and the generators of schemas and pages read them there.
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Annotated, Any, get_args, get_origin


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """Numbers that a key takes; a limit that is None does not exist."""

    least: float | None = None
    """Smallest number."""
    above: float | None = None
    """Largest number that is too small."""
    most: float | None = None
    """Largest number."""
    below: float | None = None
    """Smallest number that is too large."""
    words: str = ""
    """Words of a refusal, in place of the limits."""
    works: str = ""
    """What the reader can write instead."""

    @property
    def wanted(self) -> str:
        """What a refusal says was wanted."""
        if self.words:
            return self.words
        if self.least is not None and self.most is not None:
            return f"a number from {self.least:g} to {self.most:g}"
        limits = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{name} {_number(limit)}" for name, limit in limits.items() if limit is not None)

    def holds(self, value: float) -> bool:
        """Whether `value` is within the limits; what is not a number is not."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    @property
    def keywords(self) -> dict[str, float]:
        """Limits by their names in JSON Schema."""
        named = {
            "minimum": self.least, "exclusiveMinimum": self.above, "maximum": self.most, "exclusiveMaximum": self.below
        }  # fmt: skip
        return {name: limit for name, limit in named.items() if limit is not None and isfinite(limit)}


SHARE = Bound(least=0, most=1, words="a share in [0, 1]")
POSITIVE = Bound(above=0, below=inf, words="a number above 0")
BYTES_PER_SECOND = Bound(least=1e3, most=1e18)
FLOPS_PER_SECOND = Bound(least=1e6, most=1e24)
MEMORY_BYTES = Bound(least=1e6, most=1e18)
HOURS_TO_FAILURE = Bound(least=1.0, most=1e15)
SECONDS_LOST = Bound(least=0.0, most=1e7)
"""Seconds that one restart or write loses."""
SECONDS_OF_A_MESSAGE = Bound(least=0.0, most=1.0)
"""Seconds from one rank to the next. All of these are wide enough for machines to come: a value outside was written in
another unit, and forecasts by it would overflow."""


def split_bounds(kind: Any) -> tuple[Any, tuple[Bound, ...]]:
    """A type without the bounds that are annotated to it, and these."""
    if get_origin(kind) is not Annotated:
        return kind, ()
    inner, *notes = get_args(kind)
    return inner, tuple(note for note in notes if isinstance(note, Bound))


def _number(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"
