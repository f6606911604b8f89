"""Locks of packages: requirements with hashes, `uv.lock` and `pylock.toml` (PEP 751).

A requirement is one logical line, `name[extras]==version ; marker --hash=sha256:...`. Of a `pylock.toml` the
location of a file is not read: an index that the site names has it, and its hash says so.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gangline.spec.config.problems import ConfigProblem, FileError, printable, show

MOST_BYTES = 4 << 20
Kind = Literal["requirements", "uv", "pylock"]
PIN_WANTED = "NAME==VERSION with a --hash=sha256: for each of its files"
PIN_WORKS = "uv pip compile --generate-hashes writes that"
EXPORTS = {
    "poetry.lock": "poetry export --output requirements.txt writes that (poetry-plugin-export)",
    "pdm.lock": "pdm export --output requirements.txt writes that",
    "Pipfile.lock": "pipenv requirements --hash > requirements.txt writes that",
}
"""Advice on each lock that is not read, by its name."""

_LONGEST_MARKER, _LONGEST_ADDRESS = 500, 300
_ADDRESS = re.compile(r"(?P<scheme>https?://)(?:[^/]*@)?(?P<place>[^?#]+)(?:[?#].*)?")
_INDEX_LINE = (
    'delete the line: wheels come from the indexes of the site, in site.toml [index.NAME] url = "..."; uv pip compile'
    " writes it only with --emit-index-url, pip-compile not with --no-emit-index-url"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PIN = re.compile(rf"(?P<name>{_NAME})(?:\[{_NAME}(?:,{_NAME})*\])?==(?P<version>[0-9][a-z0-9.!+]*)")
_ARCHIVE = re.compile(r"\+.*\.[a-z]+(\.|\Z)")
"""A local version that ends like a file name: pip takes `x==1+a.zip` for a file."""
_CONTINUED = re.compile(r"[^#\\]* \\")
_COMMENT = re.compile(r"(^| )#.*")
_NOT_IN_MARKERS = re.compile(r"[^\w .,<>=!~()'\"+*-]")
_DECLARES_ENCODING = re.compile(r"#.*coding[:=]")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock."""

    name: str
    """Normalised name: lower case, dashes."""
    version: str
    marker: str | None
    """Condition on the environment (PEP 508), where the package is not for all."""
    sha256: tuple[str, ...]
    """Digests of the files that may be installed."""
    line: int
    """Where it begins in the file, from 1."""


def kind_of(file: str) -> Kind:
    """Kind of a lock by its name, as the tools that write locks choose it (PEP 751: `pylock.toml`,
    `pylock.NAME.toml`)."""
    name = file.rpartition("/")[2]
    if name == "uv.lock":
        return "uv"
    return "pylock" if name.startswith("pylock.") and name.endswith(".toml") else "requirements"


def check_lock(data: bytes, *, file: str) -> None:
    """Raises FileError as far as a lock of its kind can be read here; what a `uv.lock` selects, uv alone knows."""
    if kind_of(file) == "requirements":
        read_lock(data, file=file)
    elif kind_of(file) == "pylock":
        read_pylock(data, file=file)
    else:
        read_toml(data, file=file)


def read_toml(data: bytes, *, file: str) -> dict[str, Any]:
    """Raises FileError where a lock is not TOML, or has an unknown version."""
    if len(data) > MOST_BYTES:
        raise FileError(file, [ConfigProblem("", f"a lock of at most {MOST_BYTES} bytes", f"{len(data)}", "use fewer")])
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise FileError(file, [ConfigProblem("", "a lock in TOML", str(error)[:200], "lock again")]) from error
    version = found.get("version", found.get("lock-version"))
    if version not in (1, "1.0"):
        raise FileError(
            file, [ConfigProblem("", "version 1 of its format", show(version), "lock again with an older tool")]
        )
    return found


def read_lock(data: bytes, *, file: str) -> tuple[Pin, ...]:
    """The packages of a lock, in its order.

    Args:
        data: Content of the lock.
        file: Its name, for the message.

    Raises:
        FileError: A ConfigError that names the first line that says anything else.
    """
    if len(data) > MOST_BYTES:
        raise FileError(file, [ConfigProblem("", f"a lock of at most {MOST_BYTES} bytes", f"{len(data)}", "use fewer")])
    pins: list[Pin] = []
    for number, text in _logical_lines(data, file):
        pins.append(_pin(text, file=file, number=number))
    _demand_one_each(pins, file)
    return tuple(pins)


def _logical_lines(data: bytes, file: str) -> Iterator[tuple[int, str]]:
    """Requirements with the number of their first line: comments gone, continued lines joined, as pip does it."""
    start, joined, number = 0, "", 0
    for number, raw in enumerate(data.split(b"\n"), start=1):
        line = _plain(raw.removesuffix(b"\r"), file=file, number=number)
        start = start if joined else number
        is_comment = line.lstrip(" ").startswith("#")
        if line.endswith("\\") and not is_comment:
            if not _CONTINUED.fullmatch(line):
                _refuse(file, number, f"{show(line)}, a backslash after something else than a space")
            joined += line[:-1]
            continue
        if text := _COMMENT.sub("", joined + (f" {line}" if is_comment else line)).strip(" "):
            yield start, text
        joined = ""
    if joined:
        _refuse(file, number, "a backslash at the end of the file")


def _plain(raw: bytes, *, file: str, number: int) -> str:
    """A line that every encoding and every way of splitting lines leaves as it is."""
    line = raw.decode("ascii", "replace")
    if not line.replace("\t", " ").isprintable() or "\ufffd" in line:
        _refuse(file, number, "characters that are not printable ASCII", "leave them out, also of comments")
    if number <= 2 and _DECLARES_ENCODING.match(line):
        _refuse(file, number, "a declared encoding, by which pip would read other text", "leave the comment out")
    return line


def _pin(text: str, *, file: str, number: int) -> Pin:
    head, option, tail = text.partition(" --hash=")
    hashes = [_HASH.fullmatch(word) for word in f"{option}{tail}".split()]
    digests = tuple(each[1] for each in hashes if each)
    pin, semicolon, marker = (part.strip(" ") for part in head.partition(";"))
    match = _PIN.fullmatch(pin)
    if match is None or _ARCHIVE.search(match["version"]) or not _is_version(match["version"]):
        _refuse(file, number, _what(text), _works(text, file))
    if semicolon and not _is_marker(marker):
        _refuse(file, number, f"{show(marker)} as its condition", "python_version >= '3.11' is one")
    if not digests or len(digests) < len(hashes):
        _refuse(file, number, f"{show(pin)} {'with something else behind it' if digests else 'without one'}")
    return Pin(canonicalize_name(match["name"]), match["version"], marker or None, digests, number)


_FOLDER_LINE = "delete the line, and name its folder in environments.find_links of site.toml"
_CODE_LINE = "delete the line: the code of the commit is on the path of Python, more folders by project.path"
_FILE_LINE = "uv pip compile --generate-hashes {file} -o requirements.lock writes one file of both"
_OPTIONS = {
    "--index-url": _INDEX_LINE, "-i": _INDEX_LINE, "--extra-index-url": _INDEX_LINE, "--trusted-host": _INDEX_LINE,
    "--find-links": _FOLDER_LINE, "-f": _FOLDER_LINE, "-e": _CODE_LINE, "--editable": _CODE_LINE,
    "-r": _FILE_LINE, "--requirement": _FILE_LINE, "-c": _FILE_LINE, "--constraint": _FILE_LINE,
}  # fmt: skip
"""What works instead of an option; any other one is deleted, as it does not count here."""


def _works(text: str, file: str) -> str | None:
    if not text.startswith("-"):
        return None
    option = re.split("[^a-z-]", text, maxsplit=1)[0] if text.startswith("--") else text[:2]
    return _OPTIONS.get(option, "delete the line, it has no effect here").replace("{file}", file)


def _what(text: str) -> str:
    """What a line is instead; an address is not repeated, it may hold a password."""
    if text.startswith("-"):
        return f"the option {re.split('[^a-z-]', text, maxsplit=1)[0] if text.startswith('--') else text[:2]}"
    if "://" in text or "@" in text:
        return f"{show(re.split('[^A-Za-z0-9._-]', text, maxsplit=1)[0])} from an address"
    return show(text)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _is_marker(text: str) -> bool:
    if len(text) > _LONGEST_MARKER or " -" in f" {text}" or _NOT_IN_MARKERS.search(text):
        return False
    try:
        Marker(text)
    except (InvalidMarker, RecursionError):
        return False
    return True


def _demand_one_each(pins: Sequence[Pin], file: str) -> None:
    """A package is listed once, or once for each of several conditions."""
    seen: dict[str, dict[str | None, Pin]] = {}
    for pin in pins:
        others = seen.setdefault(pin.name, {})
        other = (
            others.get(pin.marker)
            or others.get(None)
            or (next(iter(others.values()), None) if not pin.marker else None)
        )
        if other is not None:
            found = f"{pin.name} again, of which line {other.line} names {other.version}"
            raise FileError(f"{file}:{pin.line}", [ConfigProblem("", "each package once", found, "keep one")])
        others[pin.marker] = pin


def _refuse(file: str, number: int, found: str, works: str | None = None) -> NoReturn:
    works = works or EXPORTS.get(file.rpartition("/")[2], PIN_WORKS)
    raise FileError(f"{file}:{number}", [ConfigProblem("", PIN_WANTED, found, works)])


PUBLIC_INDEX = "https://pypi.org/simple"


def lock_indexes(data: bytes, *, file: str) -> dict[tuple[str, str], str]:
    """Address of the index of each package, by name and version, as a `uv.lock` or `pylock.toml` says it.

    It is said to people and never used; user, password and query are left out.
    """
    toml = read_toml(data, file=file)
    packages = toml.get("package") or toml.get("packages") or []
    indexes: dict[tuple[str, str], str] = {}
    for package in packages if isinstance(packages, list) else ():
        name, version = (package.get("name"), package.get("version")) if isinstance(package, dict) else (None, None)
        if isinstance(name, str) and isinstance(version, str) and (address := _index_of(package)):
            indexes[canonicalize_name(name), version] = address
    return indexes


def _index_of(package: dict[str, Any]) -> str:
    source = package.get("source")
    address = source.get("registry") if isinstance(source, dict) else package.get("index")
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) and len(address) <= _LONGEST_ADDRESS else None
    return printable(f"{match['scheme']}{match['place']}") if match else ""


_ELSEWHERE = ("vcs", "directory", "archive")
PYLOCK_WORKS = "uv export --format pylock.toml writes that, for packages that have wheels"


@dataclass(frozen=True, slots=True)
class PyLock:
    """A `pylock.toml`, read."""

    requirements: bytes
    """The same lock as hashed requirements."""
    pins: tuple[Pin, ...]
    requires_python: str | None


def read_pylock(data: bytes, *, file: str) -> PyLock:
    """Raises FileError that names the package that is not locked by version, with wheels and their hashes."""
    toml = read_toml(data, file=file)
    packages = toml.get("packages") or []
    if not isinstance(packages, list) or not all(isinstance(package, dict) for package in packages):
        _refuse_pylock(file, show(packages))
    requirements = "".join(_requirement(package, file) for package in packages).encode()
    requires = toml.get("requires-python")
    return PyLock(
        requirements=requirements, pins=read_lock(requirements, file=file),
        requires_python=requires if isinstance(requires, str) else None,
    )  # fmt: skip


def _requirement(package: dict[str, Any], file: str) -> str:
    name, version, marker = (package.get(key) for key in ("name", "version", "marker"))
    if not isinstance(name, str):
        _refuse_pylock(file, f"a package called {show(name)}")
    if elsewhere := next((each for each in _ELSEWHERE if each in package), None):
        _refuse_pylock(file, f"{show(name)} from a {elsewhere}")
    if not isinstance(version, str):
        _refuse_pylock(file, f"{show(name)} of version {show(version)}")
    if not package.get("wheels"):
        _refuse_pylock(file, f"{show(name)} without a wheel")
    condition = f" ; {marker}" if isinstance(marker, str) else ""
    hashes = " ".join(f"--hash=sha256:{each}" for each in _hashes(package))
    return " ".join(f"{name}=={version}{condition} {hashes}".split()) + "\n"


def _hashes(package: dict[str, Any]) -> Iterator[object]:
    wheels = package["wheels"] if isinstance(package["wheels"], list) else []
    for wheel in wheels:
        hashes = wheel.get("hashes") if isinstance(wheel, dict) else None
        yield hashes.get("sha256") if isinstance(hashes, dict) else None


def _refuse_pylock(file: str, found: str) -> NoReturn:
    raise FileError(file, [ConfigProblem("", PIN_WANTED, found, PYLOCK_WORKS)])
