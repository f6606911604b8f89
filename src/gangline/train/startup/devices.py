"""Kinds of GPU that this process uses. Standard library only, without pathlib, which costs every program its start."""

import os
import sys

MOST_GPUS = 64
_OF_DRIVER, _OPEN_FILES = "/proc/driver/nvidia/gpus", "/proc/self/fd"
_DEVICE = "/dev/nvidia"
"""Prefix of the file of one GPU, before its number; `nvidiactl` and others are of the driver."""


def gpu_names() -> set[str]:
    """Names as the driver gives them: of devices on which torch holds memory, else of the kind that is open.

    Which of several kinds a framework other than torch has open is not known.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        devices = range(min(cuda.device_count(), MOST_GPUS))
        return {str(cuda.get_device_name(device)) for device in devices if cuda.max_memory_reserved(device)}
    names = _of_driver() if _has_device_open() else set()
    return names if len(names) == 1 else set()


def _has_device_open() -> bool:
    for each in os.listdir(_OPEN_FILES):
        try:
            target = os.readlink(f"{_OPEN_FILES}/{each}")
        except OSError:  # closed, such as the listing's own
            continue
        if target.startswith(_DEVICE) and target[len(_DEVICE) :].isdecimal():
            return True
    return False


def _of_driver() -> set[str]:
    """Names of the GPUs that the driver shows to this process or container."""
    found = set()
    for each in sorted(os.listdir(_OF_DRIVER))[:MOST_GPUS]:
        with open(f"{_OF_DRIVER}/{each}/information", errors="replace") as file:
            found |= {line.partition(":")[2].strip() for line in file if line.startswith("Model:")}
    return found - {""}
