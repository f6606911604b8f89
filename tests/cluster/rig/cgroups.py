"""The cluster's branch of the control groups: one folder in each hierarchy of version 1, or one in version 2's."""

import contextlib
import os
import time
from pathlib import Path

from tests.cluster.rig import places
from tests.cluster.rig.trouble import Lacking

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = "+cpu +cpuset +memory +pids"


def make() -> None:
    """Raises `Lacking` where this machine lets nobody make one."""
    try:
        if is_unified():
            _make_unified()
        else:
            _make_each()
    except OSError as error:
        raise Lacking(
            f"no control group can be made below {_ROOT} ({error}); the kubelet needs them writable: "
            "run on a machine, or in a container with --privileged"
        ) from error


def remove(*, seconds: float = 5.0) -> list[Path]:
    """Remove all of them, leaves first; those left are still in use, and are returned."""
    deadline = time.monotonic() + seconds
    while (left := [folder for folder in folders() if not _remove_tree(folder)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def folders() -> list[Path]:
    """Those of the cluster that exist."""
    return [folder for folder in (_ROOT / places.cgroup(), *_ROOT.glob(f"*/{places.cgroup()}")) if folder.is_dir()]


def is_unified() -> bool:
    return (_ROOT / "cgroup.controllers").is_file()


def _make_unified() -> None:
    folder = _ROOT / places.cgroup()
    folder.mkdir(exist_ok=True)
    for each in (_ROOT, folder):
        (each / "cgroup.subtree_control").write_text(_CONTROLLERS)


def _make_each() -> None:
    for hierarchy in sorted(_ROOT.iterdir()):
        if hierarchy.name == "unified" or hierarchy.is_symlink() or not hierarchy.is_dir():
            continue
        folder = hierarchy / places.cgroup()
        folder.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty at birth, and nothing may enter until they are set
            if (folder / name).is_file():
                (folder / name).write_text((hierarchy / name).read_text())


def _remove_tree(folder: Path) -> bool:
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # a process inside is still dying; the caller tries again
            Path(path).rmdir()
    return not folder.exists()
