"""The six kernel settings that a kubelet changes machine-wide: kept at the first start, put back at the end."""

import json
from pathlib import Path

_NAMES = (
    "vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
)  # fmt: skip


def read() -> dict[str, str]:
    return {name: _file(name).read_text().strip() for name in _NAMES}


def keep(path: Path) -> None:
    """Write them to `path`, unless a cluster that was not taken down did so since this machine started."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if path.is_file() and json.loads(path.read_text())["boot"] == boot:
        return
    staged = path.with_suffix(".new")
    staged.write_text(json.dumps({"boot": boot, "values": read()}))
    staged.replace(path)


def put_back(path: Path) -> None:
    """As `keep` found them; nothing where nothing is kept."""
    if not path.is_file():
        return
    for name, value in json.loads(path.read_text())["values"].items():
        if _file(name).read_text().strip() != value:
            _file(name).write_text(value)
    path.unlink()


def _file(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")
