"""How long this rank waited for others inside forward and backward; the slowest rank of a gang waits least.

For DDP the end of computing is noted: what is left of backward is waiting. Collectives that block are added one by one:
those of FSDP2 on the CPU, of sequences, experts and replicas. On CUDA FSDP2's run beside the host and are not seen.
"""

import time


class WaitMeter:
    def __init__(self) -> None:
        self._blocked = 0.0
        self._computed: float | None = None

    def add(self, seconds: float) -> None:
        """A collective blocked for so long."""
        self._blocked += seconds

    def computed(self) -> None:
        """Nothing of this backward pass is left to compute, the last gradients are on their way."""
        self._computed = time.monotonic()

    def take(self) -> float:
        """Seconds waited since last asked, up to now: ask right at the end of a forward or backward pass."""
        seconds = self._blocked
        if self._computed is not None:
            seconds += time.monotonic() - self._computed
        self._blocked, self._computed = 0.0, None
        return seconds
