"""The keeper's end of the collector: starts it once the ranks are gone, waits for it, knows how it went."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gangline.errors import GanglineError, StorageError, error_for
from gangline.train.rank_files import last_lines
from gangline.train.stop import StopOrder

STOPPED_SECONDS = 60.0
"""What a gang that was asked to stop may take; one that nobody stops takes as long as its files need."""


class Waiting(Protocol):
    """The keeper, as it is seen here."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long."""
        ...

    def own_order(self) -> StopOrder | None:
        """This node was asked to stop."""
        ...


def collect(environ: Mapping[str, str], *, log: Path, began: float, keeper: Waiting) -> GanglineError | None:
    """Have all collected that ranks left; what went wrong, in a sentence.

    `began`: seconds since the epoch, before any rank ran and after the code was laid out.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.train.collector", str(os.getpid()), str(began)],
            env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    until: float | None = None
    while (code := process.poll()) is None:
        keeper.wait(0.5)
        if until is None and keeper.own_order() is not None:
            until = time.monotonic() + STOPPED_SECONDS
        if until is not None and time.monotonic() > until:
            process.kill()
            process.wait()
            return StorageError(f"its outputs could not be collected within {STOPPED_SECONDS:.0f} s of the stop")
    if code == 0:
        return None
    words = " ".join(last_lines(log, 1))
    return error_for(code)(f"its outputs could not be collected: {words}; they lie in the gang's code folder")
