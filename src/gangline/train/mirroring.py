"""The keeper's end of the uploader: starts it, asks it for the last round, knows how it went."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import GanglineError, StorageError, error_for
from gangline.train.rank_files import last_lines

_LAST_SECONDS = 75.0
"""Longer than the uploader tries."""


class Mirroring:
    def __init__(self, environ: Mapping[str, str], *, log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gangline.train.uploader", str(os.getpid())],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=_block_stop_signals,  # noqa: PLW1509  # a keeper has one thread
            )

    def finish(self) -> GanglineError | None:
        """Wait for the last round; what went wrong, in a sentence."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return StorageError(
                "the last round of mirroring took too long; what is missing lies in the gang's out folder"
            )
        if code == 0:
            return None
        words = " ".join(last_lines(self._log, 1))
        return error_for(code)(
            f"its output could not be mirrored to the store: {words}; it lies in the gang's out folder"
        )


def _block_stop_signals() -> None:
    """An early request to stop then waits until the uploader listens."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
