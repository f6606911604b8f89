"""Choice of the Python interpreter for a commit's environment: gangline's own where the lock admits it."""

import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from gangline.build.virtualenv.uv import Uv
from gangline.errors import BuildError, ConfigError

OLDEST = ">=3.11"
"""Python that gangline's rank runtime works with."""
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_ASK = "import platform, sys; print(platform.python_version(), sys.implementation.name)"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A CPython program and its version."""

    program: Path
    version: str

    @property
    def minor(self) -> str:
        """`3.12`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def is_ours(self) -> bool:
        """Packages that were built for gangline's Python work in it."""
        return self.minor == f"{sys.version_info.major}.{sys.version_info.minor}"

    @property
    def markers(self) -> dict[str, str]:
        """Values for markers of a lock; the other markers take the values of this machine."""
        return {"python_version": self.minor, "python_full_version": self.version, "extra": ""}


def find_interpreter(requires: str | None, *, uv: Uv, file: str) -> Interpreter:
    """An interpreter that `requires` admits; gangline's own base interpreter where it does.

    Raises:
        ConfigError: This machine has none, or gangline's runtime does not work with such a Python.
    """
    own = platform.python_version()
    try:
        admitted = SpecifierSet(requires or "")
    except InvalidSpecifier as error:
        raise ConfigError(f"{file}: requires-python: wanted versions of Python, found {requires!r}") from error
    if admitted.contains(own, prereleases=True):
        return Interpreter(_base(), own)
    if not any(admitted.contains(f"3.{minor}.{patch}") for minor in range(11, 40) for patch in range(100)):
        raise ConfigError(
            f"env.lock: {file} is for Python {requires}, and gangline's rank runtime needs {OLDEST};"
            " lock for a version that both accept"
        )
    wanted = f"{requires},{OLDEST}"
    uv = replace(uv, environ={**uv.environ, "PATH": without_shims(uv.environ.get("PATH", ""))})
    try:
        output = uv.run(
            "python", "find", "--no-config", "--no-project", "--system", wanted, folder=Path("/"), what=file
        )
    except (ConfigError, BuildError) as error:
        raise ConfigError(
            f"env.lock: {file} is for Python {requires}, gangline runs in {own}, and this machine has no other that"
            " fits; install one, or environments.python_downloads = true in site.toml fetches it"
        ) from error
    program = Path(output.decode().strip()).resolve()
    return Interpreter(program, _version(program, file))


def without_shims(path: str) -> str:
    """`path` with the `bin` folders of version managers (pyenv, asdf, mise) in place of their shims.

    A shim starts only the version that is selected for a folder, and fails for every other one.
    """
    places: list[str] = []
    for place in path.split(os.pathsep):
        shims = Path(place)
        places += _installed(shims.parent) if shims.name == "shims" else [place]
    return os.pathsep.join(places)


def _installed(root: Path) -> list[str]:
    """The `bin` of each release below the folder of a version manager, newest first."""
    paths = [path for kind in ("versions", "installs/python") for path in (root / kind).glob("*/bin")]
    releases = [path for path in paths if _RELEASE.fullmatch(path.parent.name) and not path.parent.is_symlink()]
    return [
        str(release) for release in sorted(releases, key=lambda release: Version(release.parent.name), reverse=True)
    ]


def _base() -> Path:
    """Base interpreter of the environment that gangline runs in."""
    return Path(getattr(sys, "_base_executable", sys.executable) or sys.executable).resolve()


def _version(program: Path, file: str) -> str:
    done = subprocess.run(
        [program, "-I", "-S", "-c", _ASK], capture_output=True, text=True, check=False, cwd="/", timeout=60
    )
    version, _, kind = done.stdout.strip().partition(" ")
    if done.returncode or kind != sys.implementation.name:
        raise ConfigError(f"env.lock: {file}: wanted a {sys.implementation.name} interpreter, {program} is not one")
    return version
