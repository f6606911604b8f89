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
"""A rank that hangs is thawed then, should no watchdog have ended it."""
SLOW_SHARE = 0.5
"""Of its time that a slow rank stands still."""
AGAIN_SECONDS = 60.0
"""For the ranks of the next generation to be there, so that the second blow meets them."""
RESIZE_FILE = "resize.json"
"""What the keeper looks for in its folder; layout in `train.resize`, which rooms above do not import."""


def apply_fault(home: Path, aim: DrillTarget) -> None:
    """Strike. Raises UsageError where there is nothing to strike."""
    _ACTIONS[aim.kind.name](home, aim)


def describe_fault(aim: DrillTarget) -> str:
    """What is done to whom."""
    lasting = format_seconds(aim.seconds) if aim.seconds is not None else ""
    words = {
        "kill-rank": f"SIGKILL to rank {aim.rank}",
        "kill-twice": f"SIGKILL to rank {aim.rank}, and again in the restart",
        "freeze-rank": f"stopped for {lasting}: rank {aim.rank}",
        "hang-rank": f"rank {aim.rank} stands still",
        "slow-rank": f"rank {aim.rank} at half speed for {lasting}",
        "stop": f"SIGTERM to rank {aim.rank}",
        "poison": f"a batch of rank {aim.rank} is not finite",
        "oom": f"rank {aim.rank} gets no more memory",
        "lose-node": f"the node of rank {aim.rank} is gone, another starts",
        "kill-store": f"the store is away for {lasting}",
        "slow-store": f"the store is slow for {lasting}",
        "fill-disk": f"no room for checkpoints for {lasting}",
        "resize": f"from now on with {aim.ranks} {'rank' if aim.ranks == 1 else 'ranks'}, asked for",
    }
    return words[aim.kind.name]


def _kill(home: Path, aim: DrillTarget) -> None:
    kill_rank(home, aim.rank)


def _kill_twice(home: Path, aim: DrillTarget) -> None:
    folder = GangFolder(home)
    before = folder.keeper(0)
    kill_rank(home, aim.rank)
    patience = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < patience:
        now = folder.keeper(0)
        if now and before and now.generation > before.generation and str(aim.rank) in now.ranks:
            kill_rank(home, aim.rank)
            return
        time.sleep(0.01)
    raise UsageError(f"rank {aim.rank} did not come back within {AGAIN_SECONDS:g} s of the first kill")


def _freeze(home: Path, aim: DrillTarget) -> None:
    assert aim.seconds is not None, "a stop that passes has an end"
    freeze_rank(home, aim.rank, aim.seconds)


def _hang(home: Path, aim: DrillTarget) -> None:
    freeze_rank(home, aim.rank, HANG_SECONDS)


def _slow(home: Path, aim: DrillTarget) -> None:
    assert aim.seconds is not None, "it gets its time back at some time"
    slow_rank(home, aim.rank, aim.seconds, share=SLOW_SHARE)


def _stop(home: Path, aim: DrillTarget) -> None:
    stop_rank(home, aim.rank)


def _resize(home: Path, aim: DrillTarget) -> None:
    GangFolder(home).write_inside(RESIZE_FILE, {"ranks": aim.ranks})


_ACTIONS: dict[str, Callable[[Path, DrillTarget], None]] = {
    "kill-rank": _kill,
    "kill-twice": _kill_twice,
    "freeze-rank": _freeze,
    "hang-rank": _hang,
    "slow-rank": _slow,
    "stop": _stop,
    "resize": _resize,
}
