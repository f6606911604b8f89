"""Installation of a virtual environment with uv, without running code of a package.

Only wheels are installed. uv inspects the base interpreter and never the environment, and no program of the
environment is started outside a sandbox. Wheels may write anywhere in it: what makes it an environment of Python is
written after them, and a wheel that brings such a file is refused.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.build.virtualenv.interpreters import Interpreter
from gangline.build.virtualenv.rank_runtime import RuntimePackage, write_wheels
from gangline.build.virtualenv.uv import Uv
from gangline.errors import IntegrityError
from gangline.spec.config.lock import Pin
from gangline.spec.python_environment import EnvironmentManifest

_RESERVED = re.compile(r"pyvenv\.cfg|made\.json|bin/pythonw?[0-9.]*(\.exe)?")
"""Files, in small letters, that say what an environment is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """What is installed, and where."""

    draft: Path
    """Folder that is filled."""
    folder: Path
    """Its final place: scripts name this path."""
    lock: str
    interpreter: Interpreter
    pins: tuple[Pin, ...]
    runtime: tuple[RuntimePackage, ...]
    """Packages of the rank runtime that are not in the lock."""


def install(job: Installation, *, uv: Uv, notify: Callable[[str], None]) -> EnvironmentManifest:
    """Fill the draft and make its folders read-only; returns the manifest, which belongs next to the environment.

    Raises:
        IntegrityError: A wheel has another hash, brings a file of the environment itself or another package, or a
            locked package is missing afterwards.
        ConfigError, StorageError, BuildError: As `Uv.run`.
    """
    began = time.monotonic()
    site = job.draft / "lib" / f"python{job.interpreter.minor}" / "site-packages"
    site.mkdir(parents=True)
    (job.draft / "lib64").symlink_to("lib")
    (job.draft / "bin").mkdir()
    with tempfile.TemporaryDirectory(prefix=f"{job.draft.name}.", dir=job.draft.parent) as scratch:
        _install_packages(job, site, Path(scratch), uv=uv, notify=notify)
    refuse_reserved(job.draft, site, lock=job.lock)
    _replace_interpreter(job.draft, job.interpreter.program, job.folder / "bin" / "python")
    _make_virtual(job.draft, job.interpreter)
    packages = _installed_packages(site)
    locked = {pin.name for pin in job.pins}
    if absent := sorted(locked - packages.keys()):
        raise IntegrityError(f"{job.lock}: wanted {', '.join(absent[:5])} installed, found nothing of that name")
    manifest = EnvironmentManifest(
        packages=packages, added={name: packages[name] for name in sorted(packages.keys() - locked)},
        base=str(job.interpreter.program), python=job.interpreter.version, size_bytes=folder_size(job.draft),
        seconds=time.monotonic() - began,
    )  # fmt: skip
    _make_read_only(job.draft)
    return manifest


def _install_packages(job: Installation, site: Path, scratch: Path, *, uv: Uv, notify: Callable[[str], None]) -> None:
    """Install the lock and the rank runtime; of a runtime package for another Python, the wheel of an index."""
    copied = [package for package in job.runtime if job.interpreter.is_ours or package.is_for_any]
    lines = [f"{path.as_uri()} --hash=sha256:{sha}\n" for path, sha in write_wheels(scratch, copied)]
    lines += [f"{pin.name}=={pin.version} {_hashes(pin)}\n" for pin in job.pins]
    _pip_install(job, scratch, "".join(lines), uv=uv, notify=notify, options=["--require-hashes"])
    known = {"gangline", *(package.name for package in copied), *(pin.name for pin in job.pins)}
    if others := sorted(_installed_packages(site).keys() - known):
        raise IntegrityError(f"{job.lock}: wanted its own packages, found {others[0]}, which another one brings")
    if fetched := [package for package in job.runtime if package not in copied]:
        _pip_install(
            job, scratch, "".join(f"{package.name}=={package.version}\n" for package in fetched), uv=uv, notify=notify
        )


def refuse_reserved(draft: Path, site: Path, *, lock: str) -> None:
    """Raises IntegrityError if a wheel brought a file that Python or gangline would believe, in letters of any case."""
    for path in (*draft.iterdir(), *(draft / "bin").iterdir()):
        name = path.relative_to(draft).as_posix()
        if _RESERVED.fullmatch(name.casefold()):
            records = ((each.parent.name, each.read_text("utf-8", "replace")) for each in site.glob("*/RECORD"))
            who = next((info.removesuffix(".dist-info") for info, text in records if f"/{name}," in text), "a package")
            raise IntegrityError(
                f"{lock}: wanted wheels that leave the environment's own files alone, found {name} of {who};"
                " lock another version of it"
            )


def _make_virtual(draft: Path, interpreter: Interpreter) -> None:
    """Make the folder a virtual environment as `python -m venv` lays it out, without running a program of it."""
    for name in ("python", "python3", f"python{interpreter.minor}"):
        (draft / "bin" / name).symlink_to(interpreter.program)
    (draft / "pyvenv.cfg").write_text(
        f"home = {interpreter.program.parent}\nimplementation = CPython\nversion_info = {interpreter.version}\n"
        "include-system-site-packages = false\n", encoding="utf-8",
    )  # fmt: skip


def _pip_install(
    job: Installation, scratch: Path, requirements: str, *, uv: Uv, notify: Callable[[str], None],
    options: Sequence[str] = (),
) -> None:  # fmt: skip
    """Install into the draft with the base interpreter: that of the environment would run a package's `.pth`."""
    (scratch / "requirements.txt").write_text(requirements, encoding="ascii")
    uv.run(
        "pip", "install", "--python", str(job.interpreter.program), "--prefix", str(job.draft), "--no-deps",
        "--no-build", "--break-system-packages", "--compile-bytecode", "--requirements", "requirements.txt", *options,
        folder=scratch, what=job.lock, tick=lambda seconds: notify(f"installing {job.lock}: {seconds:.0f} s so far"),
    )  # fmt: skip


def _hashes(pin: Pin) -> str:
    return " ".join(f"--hash=sha256:{each}" for each in pin.sha256)


def _replace_interpreter(draft: Path, base: Path, python: Path) -> None:
    """Make scripts of packages start with the interpreter of the environment at its final place."""
    for program in (draft / "bin").iterdir():
        if not program.is_symlink() and str(base).encode() in (head := program.read_bytes()[:4096]):
            rest = program.read_bytes()[4096:]
            mode = program.stat().st_mode
            program.unlink()  # it may be a hard link to a file of uv's cache
            program.write_bytes(head.replace(str(base).encode(), str(python).encode()) + rest)
            program.chmod(mode)


def _installed_packages(site: Path) -> dict[str, str]:
    """Version by name, from the metadata folders of `site`."""
    found = (entry.name.removesuffix(".dist-info").rpartition("-") for entry in sorted(site.glob("*.dist-info")))
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, _, version in found}


def folder_size(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _make_read_only(folder: Path) -> None:
    """Remove write permission of all folders: without a sandbox, a program that installs something gets an error."""
    for path in (folder, *(each for each in folder.rglob("*") if each.is_dir() and not each.is_symlink())):
        path.chmod(0o555)


def delete_folder(folder: Path) -> None:
    """Delete a folder, read-only subfolders included; a missing one is not an error."""
    with suppress(FileNotFoundError):
        for path in (folder, *(each for each in folder.rglob("*") if each.is_dir() and not each.is_symlink())):
            path.chmod(0o755)
        shutil.rmtree(folder)
