"""Where the seconds of this rank went, by cause. Pure: laps of the clock go in, rows that sum to them come out."""

from collections.abc import Mapping

_CAUSES = {"forward": "compute", "backward": "compute", "optimizer": "compute"}
"""Phase to cause; every other phase is a cause by its own name."""


class RankLedger:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def book(self, lap: Mapping[str, float], *, redone: bool = False) -> None:
        """Add one lap; `redone`: an earlier generation had done this step already, whatever was done in it."""
        for phase, seconds in lap.items():
            cause = "redone" if redone else _CAUSES.get(phase, phase)
            self.seconds[cause] = self.seconds.get(cause, 0.0) + seconds
