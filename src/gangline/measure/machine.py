"""This machine as a plan sees it: cores, memory and GPUs.

torch is asked about GPUs alone, and only where a device file says that there may be one: a machine without GPUs answers
in a tenth of a second, and needs no torch.
"""

import os
from itertools import chain
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError

_GPU_FILES = ("nvidia*", "nvhost*", "nvmap", "kfd", "dxg")
"""Device files by which drivers are reached: NVIDIA's, those of Jetson, AMD's, and that of Windows' Linux."""


def machine(device_files: Path = Path("/dev")) -> dict[str, Any]:
    """Devices as torch sees them; cores and memory that this process may use.

    Raises:
        ConfigError: There may be a GPU, and no torch that could be asked.
    """
    files = gpu_files(device_files)
    return {
        "cores": _cores(),
        "memory_bytes": _memory_bytes(),
        "torch": None,
        "nccl": None,
        "devices": [],
        **(_torch_facts(files[0]) if files else {}),
    }


def gpu_files(folder: Path = Path("/dev")) -> list[Path]:
    """Device files of GPUs; none: this machine has no GPU that torch could use."""
    return sorted(chain.from_iterable(folder.glob(pattern) for pattern in _GPU_FILES))


def _torch_facts(file: Path) -> dict[str, Any]:
    """Versions of torch and NCCL, and the GPUs."""
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f"wanted torch, which looks at GPUs, as there is {file}; found {error}; install gangline[train]"
        ) from error
    has_cuda = torch.cuda.is_available()
    nccl = torch.cuda.nccl.version() if has_cuda else ()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return {
        "torch": torch.__version__,
        "nccl": ".".join(map(str, nccl)) or None,
        "devices": _gpus() if has_cuda else [],
    }


def _gpus() -> list[dict[str, Any]]:
    """One entry for each kind of GPU."""
    import torch

    kinds: dict[tuple[str, int], int] = {}
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        kind = (properties.name, properties.total_memory)
        kinds[kind] = kinds.get(kind, 0) + 1
    bf16 = torch.cuda.is_bf16_supported()
    return [
        {"kind": "cuda", "name": name, "memory_bytes": size, "count": count, "has_bf16": bf16}
        for (name, size), count in kinds.items()
    ]


def _cores() -> int:
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _cgroup("cpu.max").partition(" ")
    return min(allowed, max(1, int(quota) // int(period))) if quota.isdecimal() else allowed


def _memory_bytes() -> int:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _cgroup("memory.max")
    return min(physical, int(limit)) if limit.isdecimal() else physical


def _cgroup(name: str) -> str:
    """A limit of this container; empty if it has none."""
    path = Path("/sys/fs/cgroup") / name
    return path.read_text().strip() if path.is_file() else ""
