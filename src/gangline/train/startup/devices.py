"""Kinds of GPU that this process computes on. Standard library only: it asks the frameworks that are already there."""

import sys
from pathlib import Path

MOST_GPUS = 64
_OF_DRIVER = Path("/proc/driver/nvidia/gpus")
_FRAMEWORKS = ("jax", "tensorflow", "cupy", "xgboost", "paddle", "mxnet")
"""That may compute on GPUs without torch; which of them they use is not asked, as that would start them."""


def gpu_names() -> set[str]:
    """Names as the driver gives them; of a framework other than torch only where all GPUs here are of one kind."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        devices = range(min(cuda.device_count(), MOST_GPUS))
        return {str(cuda.get_device_name(each)) for each in devices if cuda.max_memory_reserved(each)}
    if any(each in sys.modules for each in _FRAMEWORKS):
        names = _of_driver()
        return names if len(names) == 1 else set()
    return set()


def _of_driver() -> set[str]:
    """Of the GPUs that the driver shows to this process or container."""
    found = set()
    for each in sorted(_OF_DRIVER.glob("*/information"))[:MOST_GPUS]:
        for line in each.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                found.add(line.partition(":")[2].strip())
    return found - {""}
