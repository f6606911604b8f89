"""Actions of each drill on the processes of a gang, applied once its step is reached."""

import time
from collections.abc import Callable
from pathlib import Path

from gangline.drill.target import DrillTarget
from gangline.errors import UsageError
from gangline.faults.process_faults import freeze_rank, kill_rank, slow_rank, stop_rank
from gangline.launch.local.folder import GangFolder
from gangline.units import format_seconds

HANG_SECONDS = 900.0
"""A hanging rank continues after this time, if no watchdog has ended it."""
SLOW_SHARE = 0.5
"""Share of its time for which a slow rank is stopped."""
AGAIN_SECONDS = 60.0
"""Time limit for the ranks of the next generation to start, before the second kill."""
RESIZE_FILE = "resize.json"
"""Request that the keeper reads in its folder; format in `keeper.ipc`."""


def apply_fault(home: Path, target: DrillTarget) -> None:
    """Apply the fault; raises UsageError if its target is gone."""
    _ACTIONS[target.kind.name](home, target)


def describe_fault(target: DrillTarget) -> str:
    """Phrase on the fault and its target."""
    duration = format_seconds(target.seconds) if target.seconds is not None else ""
    ranks = f"{target.ranks} {'rank' if target.ranks == 1 else 'ranks'}"
    return target.kind.fault.format(rank=target.rank, duration=duration, ranks=ranks)


def _kill(home: Path, target: DrillTarget) -> None:
    kill_rank(home, target.rank)


def _kill_twice(home: Path, target: DrillTarget) -> None:
    folder = GangFolder(home)
    before = folder.keeper(0)
    kill_rank(home, target.rank)
    deadline = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < deadline:
        now = folder.keeper(0)
        if now and before and now.generation > before.generation and str(target.rank) in now.ranks:
            kill_rank(home, target.rank)
            return
        time.sleep(0.01)
    raise UsageError(f"rank {target.rank} did not come back within {AGAIN_SECONDS:g} s of the first kill")


def _freeze(home: Path, target: DrillTarget) -> None:
    assert target.seconds is not None, "a freeze has a duration"
    freeze_rank(home, target.rank, target.seconds)


def _hang(home: Path, target: DrillTarget) -> None:
    freeze_rank(home, target.rank, HANG_SECONDS)


def _slow(home: Path, target: DrillTarget) -> None:
    assert target.seconds is not None, "a slow rank has a duration"
    slow_rank(home, target.rank, target.seconds, share=SLOW_SHARE)


def _stop(home: Path, target: DrillTarget) -> None:
    stop_rank(home, target.rank)


def _resize(home: Path, target: DrillTarget) -> None:
    GangFolder(home).write_inside(RESIZE_FILE, {"ranks": target.ranks})


_ACTIONS: dict[str, Callable[[Path, DrillTarget], None]] = {
    "kill-rank": _kill,
    "kill-twice": _kill_twice,
    "freeze-rank": _freeze,
    "hang-rank": _hang,
    "slow-rank": _slow,
    "stop": _stop,
    "resize": _resize,
}
