"""Exit of a rank: exit code of the error tree, retry class, and which of several exits caused the others.

A code of the error tree counts only if the runtime of the rank wrote it, with its reason: any program may end with 70.
The first failure decides. A rank that lost a peer (34) is the culprit only if no other rank failed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import (
    CODES_OF_GANGLINE,
    CODES_OF_RANKS,
    SIGKILL_CODE,
    SIGTERM_CODE,
    LostPeerError,
    OutOfMemoryError,
    RetryClass,
    TrainingError,
    retry_class,
)
from gangline.keeper.ipc.rank_report import RankReport

_MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class RankExit:
    """How the process of a rank ended."""

    rank: int
    code: int
    """Exit code of a shell: death by signal S is 128 + S."""
    signal: int | None = None
    """Signal that ended the process; None: it exited."""
    mono: float = 0.0
    is_stated: bool = False
    """The runtime of the rank wrote this code, with its reason; any other code is the program's own."""
    left: bool = False
    """It ended by itself as a rank does that is asked to stop; a process that SIGTERM killed did not."""
    finished: bool = False
    """It ended with 0 and was not asked to stop, or reported that its training is done."""
    reason: str = ""
    """Why it ended, as its runtime wrote."""

    @property
    def is_secondary(self) -> bool:
        """The rank ended because it lost a peer; the cause is on another rank."""
        return self.is_stated and self.code == LostPeerError.exit_code


def exit_of(rank: int, status: int, *, mono: float) -> RankExit:
    """Read a wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return RankExit(rank=rank, code=code, mono=mono)
    return RankExit(rank=rank, code=128 - code, signal=-code, mono=mono)


def with_report(death: RankExit, report: RankReport | None, *, finished: bool) -> RankExit:
    """`death` with what the rank reported about it.

    Args:
        death: How its process ended.
        report: Of its runtime; None: it has none.
        finished: Ending with 0 means that the rank was done.
    """
    by_itself = death.signal is None
    stated = report.code if report is not None and by_itself else None
    return replace(
        death,
        is_stated=stated == death.code and death.code in CODES_OF_RANKS,
        left=by_itself and (death.code in (0, SIGTERM_CODE) or stated == SIGTERM_CODE),
        finished=by_itself and death.code == 0 and finished,
        reason=report.reason if report is not None else "",
    )


def culprit(exits: Sequence[RankExit]) -> RankExit | None:
    """The exit that decides for the gang, of `exits` in the order of their time; None: no rank failed."""
    failed = [rank_exit for rank_exit in exits if rank_exit.code]
    primary = [rank_exit for rank_exit in failed if not rank_exit.is_secondary]
    return next(iter(primary or failed), None)


def classify(death: RankExit, *, oom_kills: int) -> tuple[int, RetryClass]:
    """Exit code and retry class of the gang after `death`; a program's own code is that of a `TrainingError`.

    137 and 143 always count: shells report a process that was killed in this way.

    Args:
        death: The culprit's.
        oom_kills: Processes that the kernel killed for memory in this cgroup since the generation began.
    """
    if death.code == SIGKILL_CODE and oom_kills > 0:
        return OutOfMemoryError.exit_code, OutOfMemoryError.retry
    if death.is_stated or death.code in (SIGKILL_CODE, SIGTERM_CODE):
        return death.code, retry_class(death.code, saved=death.is_stated)
    return TrainingError.exit_code, TrainingError.retry


def describe(death: RankExit, *, oom_kills: int = 0, reason: str = "") -> str:
    """`rank 1 ended by signal 9`, for a sentence; with the `reason` that the rank gave, if any."""
    if death.code == SIGKILL_CODE and oom_kills > 0:
        return f"rank {death.rank} was killed: out of memory"
    if death.signal is not None:
        return f"rank {death.rank} ended by signal {death.signal}"
    own = "" if death.is_stated or death.code not in CODES_OF_GANGLINE else ", its program's own"
    text = f"rank {death.rank} ended with code {death.code}{own}"
    return f"{text}: {reason}" if reason else text


def describe_leavers(exits: Sequence[RankExit], before: float) -> str:
    """`rank 1 had ended with code 0 1.2 s before`, of ranks that left before the time of a failure; empty: none did."""
    rank_exits = sorted(
        (rank_exit for rank_exit in exits if rank_exit.code == 0 and rank_exit.mono < before),
        key=lambda rank_exit: rank_exit.mono,
    )
    if not rank_exits:
        return ""
    first = "" if len(rank_exits) == 1 else ", the first"
    return f"{name_ranks(rank_exits)} had ended with code 0{first} {before - rank_exits[0].mono:.1f} s before"


def name_ranks(exits: Sequence[RankExit]) -> str:
    """`rank 1`, `ranks 0, 1`; of many the first six."""
    ranks = ", ".join(str(rank_exit.rank) for rank_exit in exits[:_MOST_NAMED]) + ", ..." * (len(exits) > _MOST_NAMED)
    return f"rank{'s' * (len(exits) > 1)} {ranks}"


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
