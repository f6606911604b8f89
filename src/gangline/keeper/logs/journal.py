"""Journal of a keeper: status, events and exit file in the layout of `spec.gang`; termination message of a pod."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError
from gangline.keeper.ipc.environment import termination_log
from gangline.keeper.logs.pod_log import PodLog
from gangline.spec.codec import canonical
from gangline.spec.gang.pod_output import to_message
from gangline.spec.gang.status import GangEnd, KeeperStatus
from gangline.storage.folder.durable_files import replace_file
from gangline.units import now


class Journal:
    """Status (replaced by rename), events (one per line) and exit file of one keeper."""

    def __init__(self, home: Path, node_rank: int, *, pod_log: PodLog | None = None) -> None:
        """`pod_log`: output of a pod, which repeats status and events; None: this is not a pod."""
        self._pod_log = pod_log
        self._status_path = home / f"keeper-{node_rank}.json"
        self._end_path = home / f"exit-{node_rank}.json"
        self._events = (home / f"keeper-{node_rank}.jsonl").open("a", buffering=1)
        self._last: KeeperStatus | None = None

    def status(self, status: KeeperStatus) -> None:
        """Write `status` if it changed."""
        if status != self._last:
            replace_file(self._status_path, canonical(status), durable=False)
            self._last = status
            if self._pod_log is not None:
                self._pod_log.status(status)

    def event(self, event: str, **values: Any) -> None:
        """Append an event with both clocks to the journal and, in a pod, to its log."""
        line = {"event": event, "mono": time.monotonic(), "time": now(), **values}
        self._events.write(json.dumps(line, separators=(",", ":")) + "\n")
        if self._pod_log is not None:
            self._pod_log.event(line)

    def end(self, end: GangEnd) -> None:
        """Write the exit file; durable when it returns."""
        self._events.close()
        replace_file(self._end_path, canonical(end), durable=True)


def report_startup_error(error: GanglineError, environ: Mapping[str, str]) -> int:
    """Report an error from before the gang started, on stderr and to the platform; returns its exit code."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  # nothing else is set up yet
    write_termination_message(end_of_error(error), termination_log(environ))
    return error.exit_code


def end_of_error(error: GanglineError) -> GangEnd:
    """End of a gang that `error` prevented from starting."""
    return GangEnd(exit_code=error.exit_code, retry=error.retry, reason=str(error), time=now())


def write_termination_message(end: GangEnd, path: Path | None) -> None:
    """Write the message that the platform keeps of a pod; `path` None: this is not a pod."""
    if path is None:
        return
    try:
        path.write_text(to_message(end))
    except OSError as error:
        print(f"{path}: cannot write the termination message: {error.strerror}", file=sys.stderr)  # noqa: T201  # its log
