"""Rank runtime: the rooms of gangline that ranks use, and the packages that these import, for a commit's own Python.

The packages are copied from the environment that gangline itself runs in. An index is needed only for a package with
compiled code if the commit has another Python. A package that is in the lock has the lock's version; a version that
the runtime cannot work with is refused before anything is installed.
"""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gangline
from gangline import __version__
from gangline.errors import ConfigError
from gangline.spec.codec import digest

DRIVER_ROOMS = frozenset({
    "cli", "stack", "serve", "bisect", "drill", "kfp", "init", "search", "line", "registry", "forge", "trackers",
    "build", "report", "signing", "faults", "launch", "git", "infer", "flare",
})  # fmt: skip
"""Rooms that only drivers use: they are not part of the runtime."""
_ROOTS = ("blake3", "stamina", "prometheus-client")
_OF_S3 = "minio"
_LEFT_OUT = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class RuntimePackage:
    """One package of the runtime."""

    name: str
    version: str
    """Version in gangline's own environment."""
    demands: tuple[tuple[str, str], ...]
    """(package that needs it, versions that it accepts)."""
    is_for_any: bool
    """Its wheel works with every Python."""


@dataclass(frozen=True, slots=True)
class RankRuntime:
    """What ranks need in addition to the packages of a lock: gangline's own files, and packages that they import."""

    packages: tuple[RuntimePackage, ...]
    own: str
    """Digest of gangline's own files."""

    @property
    def digest(self) -> str:
        """Digest of the runtime's files and the versions of its packages."""
        return digest([self.own, [[package.name, package.version] for package in self.packages]])

    def missing(self, locked: Mapping[str, str], *, file: str) -> tuple[RuntimePackage, ...]:
        """Packages that are not in `locked` (version by name).

        Raises:
            ConfigError: `locked` has a version that conflicts with gangline.
        """
        for package in self.packages:
            for who, versions in package.demands if package.name in locked else ():
                _require_version(package.name, locked[package.name], versions, who=who, file=file)
        return tuple(runtime_package for runtime_package in self.packages if runtime_package.name not in locked)


def rank_runtime_of(*, with_s3: bool) -> RankRuntime:
    """The runtime of this gangline; `with_s3`: with the client for a store that is a server."""
    own = _own_requirements()
    demands: dict[str, list[tuple[str, str]]] = {}
    todo = [(name, "gangline", str(own.get(name, ""))) for name in (*_ROOTS, *([_OF_S3] if with_s3 else []))]
    while todo:
        name, who, versions = todo.pop()
        is_new = name not in demands
        demands.setdefault(name, []).append((who, versions))
        if is_new:
            needs = map(Requirement, _distribution(name).requires or ())
            todo += [
                (canonicalize_name(need.name), name, str(need.specifier))
                for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
            ]  # fmt: skip
    packages = tuple(
        RuntimePackage(name, _distribution(name).version, tuple(demands[name]), _is_for_any(name))
        for name in sorted(demands)
    )
    return RankRuntime(packages, _own_digest())


def require_torch(locked: Mapping[str, str], *, file: str) -> None:
    """Raises ConfigError unless `locked` has a torch that gangline's training runtime accepts."""
    versions = _own_requirements()["torch"]
    if "torch" not in locked:
        raise ConfigError(
            f"env.lock: a project.task trains with torch{versions}, and {file} has no torch; add it and lock again"
        )
    _require_version("torch", locked["torch"], versions, who="gangline", file=file)


def write_wheels(folder: Path, packages: Sequence[RuntimePackage]) -> list[tuple[Path, str]]:
    """Write wheels of gangline's rooms and of `packages`; (file, digest) of each. Equal content gives equal bytes."""
    wheels = [_own_wheel(), *(_repacked(_distribution(package.name)) for package in packages)]
    found = []
    for name, data in wheels:
        (folder / name).write_bytes(data)
        found.append((folder / name, hashlib.sha256(data).hexdigest()))
    return found


def _require_version(name: str, locked: str, versions: str, *, who: str, file: str) -> None:
    if not Requirement(f"{name}{versions}").specifier.contains(locked, prereleases=True):
        by = (
            "the rank runtime of gangline" if who == "gangline" else f"{who}, which the rank runtime of gangline needs,"
        )
        raise ConfigError(
            f"env.lock: {by} wants {name}{versions}, {file} has {name} {locked}; lock a version that fits"
        )


@cache
def _own_requirements() -> dict[str, str]:
    """Version specifier by name of everything that gangline requires, extras included."""
    requirements = (Requirement(each) for each in requires("gangline") or ())
    return {
        canonicalize_name(requirement.name): str(requirement.specifier)
        for requirement in requirements
        if not requirement.extras
    }


def _distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise ConfigError(
            f"env.lock: the rank runtime needs {name}, which gangline's environment does not have;"
            " pip install 'gangline[train,s3]' works"
        ) from error


def _tags(found: Distribution) -> list[str]:
    lines = (found.read_text("WHEEL") or "").splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]


def _is_for_any(name: str) -> bool:
    return any(tag.endswith("-none-any") for tag in _tags(_distribution(name)))


def _own_files() -> Iterator[tuple[str, bytes]]:
    root = Path(str(gangline.__file__)).parent
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if parts[0] not in DRIVER_ROOMS and "__pycache__" not in parts and path.is_file():
            yield "/".join(("gangline", *parts)), path.read_bytes()


@cache
def _own_digest() -> str:
    sha256 = hashlib.sha256(__version__.encode())
    for path, data in _own_files():
        sha256.update(f"\0{path}\0{len(data)}\0".encode() + data)
    return sha256.hexdigest()


def _own_wheel() -> tuple[str, bytes]:
    text = f"Metadata-Version: 2.1\nName: gangline\nVersion: {__version__}\nSummary: The rank runtime of gangline.\n"
    info = {"METADATA": text.encode(), "WHEEL": _wheel_text(["py3-none-any"])}
    return _wheel("gangline", __version__, _own_files(), info)


def _repacked(found: Distribution) -> tuple[str, bytes]:
    """(name, bytes) of a wheel with the files that are installed here, without scripts, which name this Python."""
    name, files, info = found.metadata["Name"], {}, {}
    for file in found.files or ():
        if file.parts[0] in ("..", "/") or "__pycache__" in file.parts:
            continue
        data = Path(str(file.locate())).read_bytes()
        if not file.parts[0].endswith(".dist-info"):
            files[str(file)] = data
        elif file.name not in _LEFT_OUT:
            info["/".join(file.parts[1:])] = data
    return _wheel(name, found.version, sorted(files.items()), info, tags=_tags(found))


def _wheel(
    name: str,
    version: str,
    files: Iterable[tuple[str, bytes]],
    info: Mapping[str, bytes],
    tags: Sequence[str] = ("py3-none-any",),
) -> tuple[str, bytes]:
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
    members = [*files, *((f"{stem}.dist-info/{each}", data) for each, data in sorted(info.items()))]
    rows = [f"{path},sha256={_record_hash(data)},{len(data)}" for path, data in members]
    record = "\n".join([*rows, f"{stem}.dist-info/RECORD,,", ""]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, data in (*members, (f"{stem}.dist-info/RECORD", record)):
            archive.writestr(zipfile.ZipInfo(path, _TIME), data)
    return f"{stem}-{_compressed(tags)}.whl", out.getvalue()


def _compressed(tags: Sequence[str]) -> str:
    """Several wheel tags as one compressed tag."""
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    return "-".join(".".join(sorted(set(part))) for part in parts)


def _wheel_text(tags: Sequence[str]) -> bytes:
    lines = ["Wheel-Version: 1.0", "Generator: gangline", "Root-Is-Purelib: true", *(f"Tag: {tag}" for tag in tags)]
    return "\n".join([*lines, ""]).encode()


def _record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
