"""What a pod gives its ranks, in one line: the first thing to look at where training is slow or does not start."""

import os
import resource
from pathlib import Path

from gangline.units import format_bytes

_SHM = "/dev/shm"  # noqa: S108  # its size is what is asked for, nothing is put there


def preflight() -> str:
    """`locked memory unlimited · /dev/shm 1.07 GB · 8 cores · 2 GPUs`."""
    return " · ".join((_locked(), _shm(), _cores(), _gpus()))


def _locked() -> str:
    """RDMA wants it unlimited; gloo and NCCL over TCP do not care."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return f"locked memory {'unlimited' if soft == resource.RLIM_INFINITY else format_bytes(soft)}"


def _shm() -> str:
    """Loaders with workers and NCCL live in it."""
    try:
        found = os.statvfs(_SHM)
    except OSError as error:
        return f"{_SHM} {error.strerror}"
    return f"{_SHM} {format_bytes(found.f_blocks * found.f_frsize)}"


def _cores() -> str:
    return f"{len(os.sched_getaffinity(0))} cores"


def _gpus() -> str:
    found = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()]
    return f"{len(found)} GPUs"
