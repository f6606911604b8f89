"""When a follower looks for the reason of a wait, when it reports it, and when it gives up."""

import time

from gangline.launch.kubernetes.waiting import WaitingReason

LOOK_SECONDS = 3.0
"""How often the reason is asked for."""
SAID_SECONDS = 10.0
"""How often another one is told at most."""


class WaitReporter:
    """One sentence at a time."""

    def __init__(self) -> None:
        self.sentence = ""
        """As it was last told."""
        self._now: WaitingReason | None = None
        self._looked = self._said = float("-inf")
        self._hopeless_at = float("inf")

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._looked >= LOOK_SECONDS

    @property
    def is_hopeless(self) -> bool:
        """What will not go away by itself has lasted for as long as it may."""
        return time.monotonic() >= self._hopeless_at

    @property
    def reason(self) -> str:
        """As it was last seen."""
        return "no reason is known" if self._now is None else self._now.sentence

    def take(self, waiting: WaitingReason | None) -> None:
        self._looked = time.monotonic()
        if waiting is None or waiting.final_after_seconds is None:
            self._hopeless_at = float("inf")
        elif self._now is None or self._now.kind != waiting.kind or self._hopeless_at == float("inf"):
            self._hopeless_at = self._looked + waiting.final_after_seconds
        self._now = waiting

    def news(self) -> WaitingReason | None:
        """What is to be told now; a last word is told at once."""
        if self._now is None or self._now.sentence == self.sentence:
            return None
        if time.monotonic() - self._said < SAID_SECONDS and not self.is_hopeless:
            return None
        self.sentence, self._said = self._now.sentence, time.monotonic()
        return self._now

    def clear(self) -> None:
        """It does not wait any more."""
        self.sentence, self._now, self._hopeless_at = "", None, float("inf")
