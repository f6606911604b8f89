"""The folder in memory where a node keeps copies of checkpoints: its keeper's, so that it outlives the ranks.

Named after the keeper, so that what one left that was killed is known to be nobody's. Standard library alone.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.procfs import is_alive, start_time

MEMORY = Path("/dev/shm")  # noqa: S108  # what the system offers as files in memory
_NAME = re.compile(r"gangline-copies-(\d+)-(\d+)-(\d+)")


@contextmanager
def copy_folder(memory: Path = MEMORY) -> Iterator[Path | None]:
    """A folder of this process while it lives, once those of dead ones are gone; None: there is no memory for one."""
    folder = _make(memory)
    try:
        yield folder
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # what cannot be removed now is swept later


def _make(memory: Path) -> Path | None:
    folder = memory / f"gangline-copies-{_namespace()}-{os.getpid()}-{start_time(os.getpid())}"
    try:
        _sweep(memory)
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    return folder


def _sweep(memory: Path) -> None:
    """Remove the folders of keepers that are gone; those of other containers cannot be judged from here."""
    for path in memory.iterdir():
        owner = _NAME.fullmatch(path.name)
        if owner and int(owner[1]) == _namespace() and not is_alive(int(owner[2]), int(owner[3])):
            shutil.rmtree(path, ignore_errors=True)


def _namespace() -> int:
    """Process numbers mean something in one namespace; containers may share their memory folder."""
    return Path("/proc/self/ns/pid").stat().st_ino
