"""How long a step takes between two bounds, and what can be told from them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one plan; of what was measured both are equal."""

    most: float
    """Seconds, or what they cost, with as much communication hidden behind computing as the site grants."""
    least: float
    """With as much hidden as there is computing to hide it."""

    def times(self, factor: float) -> "Pace":
        return Pace(self.most * factor, self.least * factor)

    def is_clearly_below(self, other: "Pace", band: float) -> bool:
        """Whatever is hidden, by more than the share `band`; a strict partial order."""
        return self.most * (1 + band) < other.most and self.least * (1 + band) < other.least

    def beyond(self, other: "Pace") -> float:
        """By which share it is more than `other` at the upper bound; below 0: less."""
        return self.most / other.most - 1
