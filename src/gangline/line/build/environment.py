"""The digest of an environment: a lock's bytes where the line has one, else what is installed beside this Python."""

import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from gangline import __version__
from gangline.spec.codec import digest


def of_lock(lock: bytes) -> str:
    return sha256(lock).hexdigest()


@cache
def installed() -> dict[str, str]:
    """Distribution to version, read from the names of their metadata folders on `sys.path`."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        for entry in sorted(Path(folder or ".").glob("*.dist-info")):
            name, _, version = entry.name.removesuffix(".dist-info").rpartition("-")
            found.setdefault(name.lower().replace("_", "-"), version)
    return found


@cache
def of_this_interpreter() -> str:
    return digest({"python": versions()["python"], "platform": sys.platform, "installed": installed()})


def versions() -> dict[str, str]:
    """What a record says about the software, as far as it is there."""
    found = {"gangline": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    return found | {name: installed()[name] for name in ("torch", "numpy") if name in installed()}
