"""The control word: what one rank knows and all must do at the same step, such as to stop.

It travels with the sums of a step, which are sent before the last backward pass and awaited after it: all ranks hear it
at the end of the same step, and it costs no message of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    stop: bool = False
    """Save together and leave."""
    save: bool = False
    """Save now, then go on."""
    profile: bool = False
    """There is a request to read."""

    def counts(self) -> list[float]:
        """As numbers that are added up over all ranks."""
        return [float(self.stop), float(self.save), float(self.profile)]

    @staticmethod
    def heard(sums: Sequence[float]) -> "Word":
        """What any rank said."""
        return Word(*(each > 0 for each in sums))
