"""Stacks of ranks that hang: asked for by signal, read from the end of their logs."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gangline.procfs import catches, state
from gangline.train.child import STACKS_SIGNAL

_PATIENCE_SECONDS = 1.0
_LIMIT_BYTES = 4096


def collect(ranks: Mapping[int, tuple[int, Path]]) -> dict[str, str]:
    """Words about each rank, given as pid and log: its stacks, or why there are none. Takes a second at most."""
    asked: dict[int, int] = {}
    found: dict[str, str] = {}
    for rank, (pid, log) in ranks.items():
        if state(pid) == "T":
            found[str(rank)] = "stopped by a signal (SIGSTOP); it cannot say where it is"
        elif catches(pid, STACKS_SIGNAL):
            asked[rank] = log.stat().st_size
            with suppress(ProcessLookupError):  # it ended on its own meanwhile
                os.kill(pid, STACKS_SIGNAL)
        else:
            found[str(rank)] = "a program that does not answer SIGUSR1"
    if asked:
        time.sleep(_PATIENCE_SECONDS / 2)
    patience = time.monotonic() + _PATIENCE_SECONDS / 2
    for rank, size in asked.items():
        found[str(rank)] = _new_words(ranks[rank][1], size, patience) or "it did not answer SIGUSR1"
    return found


def _new_words(log: Path, start: int, patience: float) -> str:
    while log.stat().st_size == start and time.monotonic() < patience:
        time.sleep(0.02)
    with log.open("rb") as file:
        file.seek(start)
        return file.read(_LIMIT_BYTES).decode(errors="replace")
