"""Cache of virtual environments, made once for each lock and keyed by everything that goes into them.

    ROOT/DIGEST/            a virtual environment; it exists whole or not at all
    ROOT/DIGEST/made.json   its content
    ROOT/DIGEST.lock        held by the process that makes it; touched by every use

The digest covers the lock's packages with their hashes, Python, platform and gangline's rank runtime. So equal
digests mean equal files, whoever wrote the lock: a commit of a fork shares an environment with one of our own only
where both ask for the same wheels. No code of a package runs here: only wheels are installed, uv inspects the base
interpreter and never the environment, and no program of it is started outside a sandbox.
"""

import fcntl
import json
import os
import shutil
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import IO

from packaging.markers import Marker

from gangline.errors import ConfigError, GanglineError, IntegrityError
from gangline.build.venv import rank_runtime
from gangline.build.venv.interpreters import Interpreter, find_interpreter
from gangline.build.venv.locks import CommitLock
from gangline.build.venv.uv import Uv
from gangline.errors import storage_errors
from gangline.spec.codec import Document, canonical, digest, from_json
from gangline.spec.config.lock import Pin
from gangline.units import format_bytes

FOLDER = "environments"
MANIFEST = "made.json"
VERSION = 1
"""Of what is done to make one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentManifest(Document):
    """What an environment holds, read from its folder once it was made."""

    packages: dict[str, str]
    """By name, with versions: all that is installed."""
    added: dict[str, str]
    """Of these, what the lock does not have: gangline's rank runtime."""
    python: str
    size_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class VirtualEnvironment:
    digest: str
    folder: Path
    lock: str
    made: EnvironmentManifest
    is_cached: bool = True

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def source(self) -> str:
        """For people."""
        count = _count(len(self.made.packages) - len(self.made.added))
        what = f"{self.lock}: {count}, Python {self.made.python}"
        return f"{what}, cached" if self.is_cached else f"{what}, installed in {self.made.seconds:.1f} s"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRequest:
    """An environment, as far as it is known before it is there."""

    lock: CommitLock
    interpreter: Interpreter
    pins: tuple[Pin, ...]
    """Those of this Python and machine."""
    runtime: rank_runtime.RankRuntime
    missing: tuple[rank_runtime.RuntimePackage, ...]

    @property
    def digest(self) -> str:
        return digest({
            "lock": sha256(self.lock.requirements).hexdigest(), "python": self.interpreter.version,
            "platform": sysconfig.get_platform(), "runtime": self.runtime.digest, "version": VERSION,
        })  # fmt: skip


def request_environment(lock: CommitLock, *, uv: Uv, for_task: bool, with_s3: bool) -> EnvironmentRequest:
    """Raises ConfigError for a lock of another Python, or one that does not go with what ranks need of gangline."""
    interpreter = find_interpreter(lock.requires_python, uv=uv, file=lock.file)
    pins = tuple(pin for pin in lock.pins if not pin.marker or Marker(pin.marker).evaluate(interpreter.markers))
    locked = {pin.name: pin.version for pin in pins}
    if "gangline" in locked:
        raise ConfigError(f"env.lock: {lock.file} has a gangline of its own; leave it out, ranks get the driver's")
    if for_task:
        rank_runtime.require_torch(locked, file=lock.file)
    runtime = rank_runtime.rank_runtime_of(with_s3=with_s3)
    missing = runtime.missing(locked, file=lock.file)
    return EnvironmentRequest(lock=lock, interpreter=interpreter, pins=pins, runtime=runtime, missing=missing)


def find_environment(asked: EnvironmentRequest, root: Path) -> VirtualEnvironment | None:
    """The environment, where it was made before; it counts as used from now on."""
    folder = root / asked.digest
    try:
        made = from_json(EnvironmentManifest, (folder / MANIFEST).read_bytes())
        os.utime(_lock_file(folder))
    except (OSError, IntegrityError):
        return None
    if not (folder / "bin" / "python").exists():  # what it stands on was removed from this machine
        return None
    return VirtualEnvironment(digest=asked.digest, folder=folder, lock=asked.lock.file, made=made)


def make_environment(asked: EnvironmentRequest, root: Path, *, uv: Uv, say: Callable[[str], None]) -> VirtualEnvironment:
    """The environment, made now where it was not yet; somebody else who makes it is waited for.

    Raises:
        ConfigError: A package has no wheel for this Python, or no index has it.
        IntegrityError: A wheel is not what the lock says.
        StorageError: No index answers, or the disk is full; nothing of it is left.
    """
    folder = root / asked.digest
    if found := find_environment(asked, root):
        return found
    with storage_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        with _lock_held(folder, lambda: say(f"waiting for another run that installs {asked.lock.file}")):
            if found := find_environment(asked, root):
                return found
            for left in (*root.glob(f".{asked.digest}.*"), folder):
                remove(left)
            draft = root / f".{asked.digest}.{token_hex(4)}"
            say(f"installing {_count(len(asked.pins))} of {asked.lock.file}, for Python {asked.interpreter.version}")
            try:
                made = _make(asked, draft, folder, uv=uv, say=say)
                draft.rename(folder)
            finally:
                remove(draft)
    return VirtualEnvironment(digest=asked.digest, folder=folder, lock=asked.lock.file, made=made, is_cached=False)


def _make(asked: EnvironmentRequest, draft: Path, folder: Path, *, uv: Uv, say: Callable[[str], None]) -> EnvironmentManifest:
    """Everything below `draft`, as it is to lie in `folder`."""
    began = time.monotonic()
    site = _lay_out(draft, asked.interpreter)
    wheels = draft / "wheels"
    wheels.mkdir()
    fitting = [each for each in asked.missing if asked.interpreter.is_ours or each.is_for_any]
    own = rank_runtime.write_wheels(wheels, fitting)
    built = [each for each in asked.missing if each not in fitting]
    lines = [f"{path.as_uri()} --hash=sha256:{sha}\n" for path, sha in own]
    lines += [f"{pin.name}=={pin.version} {_hashes(pin)}\n" for pin in asked.pins]
    _install(asked, draft, "".join(lines), uv=uv, say=say, options=["--require-hashes"])
    if built:
        _install(asked, draft, "".join(f"{each.name}=={each.version}\n" for each in built), uv=uv, say=say)
    remove(wheels)
    (draft / "requirements.txt").unlink()
    _name_python(draft, asked.interpreter.program, folder / "bin" / "python")
    packages = _installed(site)
    locked = {pin.name for pin in asked.pins}
    if absent := sorted(locked - packages.keys()):
        raise IntegrityError(f"{asked.lock.file}: wanted {', '.join(absent[:5])} installed, found nothing of that name")
    made = EnvironmentManifest(
        packages=packages, added={name: packages[name] for name in sorted(packages.keys() - locked)},
        python=asked.interpreter.version, size_bytes=_size(draft), seconds=time.monotonic() - began,
    )  # fmt: skip
    (draft / MANIFEST).write_bytes(canonical(made))
    _close(draft)
    return made


def _lay_out(draft: Path, interpreter: Interpreter) -> Path:
    """A virtual environment as `python -m venv` lays it out, without a program of the environment having run."""
    site = draft / "lib" / f"python{interpreter.minor}" / "site-packages"
    site.mkdir(parents=True)
    (draft / "lib64").symlink_to("lib")
    (draft / "bin").mkdir()
    for name in ("python", "python3", f"python{interpreter.minor}"):
        (draft / "bin" / name).symlink_to(interpreter.program)
    (draft / "pyvenv.cfg").write_text(
        f"home = {interpreter.program.parent}\nimplementation = CPython\nversion_info = {interpreter.version}\n"
        "include-system-site-packages = false\n", encoding="utf-8",
    )  # fmt: skip
    return site


def _install(
    asked: EnvironmentRequest, draft: Path, requirements: str, *, uv: Uv, say: Callable[[str], None], options: Sequence[str] = ()
) -> None:
    """Into `draft` by the interpreter below: a `.pth` of a package would run in one of the environment."""
    (draft / "requirements.txt").write_text(requirements, encoding="ascii")
    uv.run(
        "pip", "install", "--python", str(asked.interpreter.program), "--prefix", str(draft), "--no-deps", "--no-build",
        "--break-system-packages", "--compile-bytecode", "--requirements", "requirements.txt", *options, folder=draft,
        what=asked.lock.file,
        tell=lambda seconds: say(f"installing {asked.lock.file}: {seconds:.0f} s so far"),
    )  # fmt: skip


def _count(packages: int) -> str:
    return "1 package" if packages == 1 else f"{packages} packages"


def _hashes(pin: Pin) -> str:
    return " ".join(f"--hash=sha256:{each}" for each in pin.sha256)


def _name_python(draft: Path, base: Path, python: Path) -> None:
    """Programs of packages start with the environment's interpreter, where it will lie."""
    for program in (draft / "bin").iterdir():
        if not program.is_symlink() and str(base).encode() in (head := program.read_bytes()[:4096]):
            whole = program.read_bytes()
            mode = program.stat().st_mode
            program.unlink()  # it may be a link to a file of uv's cache
            program.write_bytes(head.replace(str(base).encode(), str(python).encode()) + whole[4096:])
            program.chmod(mode)


def _installed(site: Path) -> dict[str, str]:
    found = (entry.name.removesuffix(".dist-info").rpartition("-") for entry in sorted(site.glob("*.dist-info")))
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, _, version in found}


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _close(folder: Path) -> None:
    """No folder of it is writable: where there is no sandbox, a program that installs something else is told so."""
    for path in (folder, *(each for each in folder.rglob("*") if each.is_dir() and not each.is_symlink())):
        path.chmod(0o555)


def remove(folder: Path) -> None:
    """A folder of which other processes may write in; what is not there is gone."""
    with suppress(FileNotFoundError):
        for path in (folder, *(each for each in folder.rglob("*") if each.is_dir() and not each.is_symlink())):
            path.chmod(0o755)
        shutil.rmtree(folder)


@contextmanager
def _lock_held(folder: Path, waits: Callable[[], None]) -> Iterator[None]:
    with _lock_file(folder).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _size_of(folder: Path) -> int:
    try:
        return from_json(EnvironmentManifest, (folder / MANIFEST).read_bytes()).size_bytes
    except (OSError, IntegrityError):
        return _size(folder)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusedEnvironments:
    """An environment that a sweep looked at."""

    digest: str
    size_bytes: int
    """Together with what it shares with uv's cache."""
    days: float
    """Since it was used."""
    is_over: bool
    """Unused for too long."""
    deleted: bool


def sweep_environments(root: Path, *, keep_seconds: float, dry_run: bool) -> list[UnusedEnvironments]:
    """Delete what no run has used for so long, and what those who were killed left; one that is being made stays."""
    found = []
    for lock in sorted(root.glob("*.lock")):
        folder = lock.with_suffix("")
        with lock.open("ab") as file, suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            idle = time.time() - lock.stat().st_mtime
            over = idle > keep_seconds
            drafts = list(root.glob(f".{folder.name}.*"))
            if folder.exists():
                size = _size_of(folder)
                found.append(UnusedEnvironments(digest=folder.name, size_bytes=size, days=idle / 86400, is_over=over, deleted=over and not dry_run))
            if not dry_run:
                for each in (*drafts, *([folder] if over else [])):
                    remove(each)
    return found
