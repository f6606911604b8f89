"""When a follower asks why a gang waits, when it says so, and when it gives up hope."""

import time

from gangline.launch.kubernetes.waiting import Waiting

LOOK_SECONDS = 3.0
"""How often the reason is asked for."""
SAID_SECONDS = 10.0
"""How often another one is told at most."""


class Waits:
    """One sentence at a time, told every few seconds at most; whether it is hopeless by now."""

    def __init__(self) -> None:
        self.sentence = ""
        self._looked = self._said = float("-inf")
        self._final: tuple[str, float, float] | None = None

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._looked >= LOOK_SECONDS

    @property
    def is_hopeless(self) -> bool:
        return self._final is not None and time.monotonic() >= self._final[1] + self._final[2]

    def take(self, waiting: Waiting) -> bool:
        """Note it; True: tell it."""
        now = self._looked = time.monotonic()
        if waiting.final_after_seconds is None:
            self._final = None
        elif self._final is None or self._final[0] != waiting.kind:
            self._final = (waiting.kind, now, waiting.final_after_seconds)
        is_new = waiting.sentence != self.sentence and (now - self._said >= SAID_SECONDS or self.is_hopeless)
        if is_new:
            self.sentence, self._said = waiting.sentence, now
        return is_new

    def clear(self) -> None:
        self.sentence = ""
        self._final = None
