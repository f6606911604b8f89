"""How long this rank waited for others inside forward and backward; the slowest rank of a gang waits least.

DDP reports the launch of its last bucket: what is left of backward is waiting. FSDP2 on the CPU reports each
collective, which blocks there. On CUDA collectives run beside the host, and FSDP2's waits are not seen.
"""

import time


class WaitMeter:
    def __init__(self) -> None:
        self._blocked = 0.0
        self._last_launch: float | None = None

    def add(self, seconds: float) -> None:
        """A collective blocked for so long."""
        self._blocked += seconds

    def launched_last(self) -> None:
        """The last gradients of this backward pass are on their way: nothing is left to compute."""
        self._last_launch = time.monotonic()

    def take(self) -> float:
        """Seconds waited since last asked, up to now: ask right at the end of a forward or backward pass."""
        seconds = self._blocked
        if self._last_launch is not None:
            seconds += time.monotonic() - self._last_launch
        self._blocked, self._last_launch = 0.0, None
        return seconds
