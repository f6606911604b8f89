"""Signals that the keeper sends to ranks, and the sizes and files that belong to them."""

import signal
from pathlib import Path

STACKS_SIGNAL = signal.SIGUSR1
"""Makes a rank write the stacks of its threads to its log."""
FLIGHT_SIGNAL = signal.SIGUSR2
"""Makes a rank write the flight record of its collectives to `flight_record_path`."""
MESSAGE_BYTES = 1 << 18
"""Largest message between the keeper and the warm parent."""


def flight_record_path(heartbeat: Path) -> Path:
    """File of a rank's flight record, next to its heartbeat file."""
    return heartbeat.with_name(f"{heartbeat.name}.flight.json")
