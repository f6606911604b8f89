"""`pylock.toml` (PEP 751) as packages by version and hash. Where a file lies is not read: an index that the site names
has it, and its hash says whether it is the one. So no commit makes a driver ask an address.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from gangline.spec.lock import WANTED, Pin, read_lock, read_toml
from gangline.spec.problems import FileError, Problem, show

_ELSEWHERE = ("vcs", "directory", "archive")
WORKS = "uv export --format pylock.toml writes that, for packages that have wheels"


@dataclass(frozen=True, slots=True)
class PyLock:
    requirements: bytes
    """The same lock as hashed requirements."""
    pins: tuple[Pin, ...]
    requires_python: str | None


def read_pylock(data: bytes, *, file: str) -> PyLock:
    """Raises FileError that names the package that is not locked by version, with wheels and their hashes."""
    found = read_toml(data, file=file)
    packages = found.get("packages") or []
    if not isinstance(packages, list) or not all(isinstance(each, dict) for each in packages):
        _refuse(file, show(packages))
    requirements = "".join(_requirement(each, file) for each in packages).encode()
    requires = found.get("requires-python")
    return PyLock(
        requirements=requirements, pins=read_lock(requirements, file=file),
        requires_python=requires if isinstance(requires, str) else None,
    )  # fmt: skip


def _requirement(package: dict[str, Any], file: str) -> str:
    name, version, marker = (package.get(key) for key in ("name", "version", "marker"))
    if not isinstance(name, str):
        _refuse(file, f"a package called {show(name)}")
    if elsewhere := next((each for each in _ELSEWHERE if each in package), None):
        _refuse(file, f"{show(name)} from a {elsewhere}")
    if not isinstance(version, str):
        _refuse(file, f"{show(name)} of version {show(version)}")
    if not package.get("wheels"):
        _refuse(file, f"{show(name)} without a wheel")
    condition = f" ; {marker}" if isinstance(marker, str) else ""
    hashes = " ".join(f"--hash=sha256:{each}" for each in _hashes(package))
    return " ".join(f"{name}=={version}{condition} {hashes}".split()) + "\n"


def _hashes(package: dict[str, Any]) -> Iterator[object]:
    wheels = package["wheels"] if isinstance(package["wheels"], list) else []
    for wheel in wheels:
        hashes = wheel.get("hashes") if isinstance(wheel, dict) else None
        yield hashes.get("sha256") if isinstance(hashes, dict) else None


def _refuse(file: str, found: str) -> NoReturn:
    raise FileError(file, [Problem("", WANTED, found, WORKS)])
