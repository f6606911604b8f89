"""How much memory this process's group may still take: files in memory are charged to it as its own are."""

from pathlib import Path

_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where the two versions of control groups tell limit, use, and the part of it that can be had back."""


def available_bytes() -> int:
    """What the machine has to give, or what is left of the group's limit where that is less."""
    return max(0, min([_field(Path("/proc/meminfo"), "MemAvailable:") * 1024, *_left_in_groups()]))


def _left_in_groups() -> list[int]:
    left = []
    for root, limit, used, reclaimable in _GROUPS:
        for folder in {root, *(root / path for path in _own_paths())}:
            bound, use = _number(folder / limit), _number(folder / used)
            if bound is not None and use is not None:
                left.append(bound - use + _field(folder / "memory.stat", reclaimable))
    return left


def _own_paths() -> list[str]:
    lines = [line.split(":", 2) for line in _lines(Path("/proc/self/cgroup"))]
    return [path.lstrip("/") for _, controllers, path in lines if controllers in ("", "memory")]


def _number(path: Path) -> int | None:
    """None: no file, or no limit."""
    text = next(iter(_lines(path)), "")
    return int(text) if text.isdecimal() else None


def _field(path: Path, name: str) -> int:
    return next((int(line.split()[1]) for line in _lines(path) if line.split()[:1] == [name]), 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
