"""Exit of a rank: exit code of the error tree, retry class, and which of several exits caused the others.

The first failure decides. A rank that lost a peer (34) is the culprit only if no other rank failed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import (
    SIGKILL_CODE,
    SIGTERM_CODE,
    LostPeerError,
    OutOfMemoryError,
    RetryClass,
    retry_class,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankExit:
    """How the process of a rank ended."""

    rank: int
    code: int
    """As the shell counts: death by signal S is 128 + S."""
    signal: int | None = None
    """Signal that ended the process; None: it exited."""
    mono: float = 0.0

    @property
    def saved(self) -> bool:
        """It was asked to stop, saved and exited; a process that SIGTERM killed did not save."""
        return self.code == SIGTERM_CODE and self.signal is None

    @property
    def is_secondary(self) -> bool:
        """The rank ended because it lost a peer; the cause is on another rank."""
        return self.code == LostPeerError.exit_code


def exit_of(rank: int, status: int, *, mono: float) -> RankExit:
    """Read a wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return RankExit(rank=rank, code=code, mono=mono)
    return RankExit(rank=rank, code=128 - code, signal=-code, mono=mono)


def culprit(exits: Sequence[RankExit]) -> RankExit | None:
    """The exit that decides for the gang, of `exits` in the order of their time; None: no rank failed."""
    failed = [each for each in exits if each.code]
    primary = [each for each in failed if not each.is_secondary]
    return next(iter(primary or failed), None)


def classify(death: RankExit, *, oom_kills: int) -> tuple[int, RetryClass]:
    """Exit code and retry class of the gang after `death`.

    Args:
        death: The culprit's.
        oom_kills: Processes that the kernel killed for memory in this cgroup since the generation began.
    """
    if death.code == SIGKILL_CODE and oom_kills > 0:
        return OutOfMemoryError.exit_code, OutOfMemoryError.retry
    return death.code, retry_class(death.code, saved=death.saved)


def describe(death: RankExit, *, oom_kills: int = 0, reason: str = "") -> str:
    """`rank 1 ended by signal 9`, for a sentence; with the `reason` that the rank gave, if any."""
    if death.code == SIGKILL_CODE and oom_kills > 0:
        return f"rank {death.rank} was killed: out of memory"
    if death.signal is not None:
        return f"rank {death.rank} ended by signal {death.signal}"
    text = f"rank {death.rank} ended with code {death.code}"
    return f"{text}: {reason}" if reason else text


def read_oom_kills() -> int | None:
    """Processes of this cgroup that the kernel has killed for memory; None: it does not count them."""
    for line in _cgroup_lines():
        _, controllers, path = line.split(":", 2)
        for root, name in _OOM_FILES.get(controllers, ()):
            counted = _count(root / path.lstrip("/") / name)
            if counted is None:
                counted = _count(root / name)  # in a container the mount is this cgroup
            if counted is not None:
                return counted
    return None


_OOM_FILES = {
    "": ((Path("/sys/fs/cgroup"), "memory.events"), (Path("/sys/fs/cgroup/unified"), "memory.events")),
    "memory": ((Path("/sys/fs/cgroup/memory"), "memory.oom_control"),),
}


def _cgroup_lines() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []


def _count(path: Path) -> int | None:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(word[1]) for word in words if len(word) == 2 and word[0] == "oom_kill"), None)
