"""Installation of a virtual environment with uv, without running code of a package.

Only wheels are installed. uv inspects the base interpreter and never the environment, and no program of the
environment is started outside a sandbox.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.build.virtualenv.interpreters import Interpreter
from gangline.build.virtualenv.rank_runtime import RuntimePackage, write_wheels
from gangline.build.virtualenv.uv import Uv
from gangline.errors import IntegrityError
from gangline.spec.codec import Document, canonical
from gangline.spec.config.lock import Pin

MANIFEST = "made.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentManifest(Document):
    """`made.json`: what an environment holds."""

    packages: dict[str, str]
    """Version by name of every installed package."""
    added: dict[str, str]
    """The part of `packages` that is not in the lock: gangline's rank runtime."""
    python: str
    size_bytes: int
    seconds: float
    """Time that the installation took."""


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
    """Fill the draft and make its folders read-only; the manifest is written last.

    Raises:
        IntegrityError: A wheel has another hash, or a locked package is missing afterwards.
        ConfigError, StorageError, BuildError: As `Uv.run`.
    """
    began = time.monotonic()
    site = _lay_out(job.draft, job.interpreter)
    wheels = job.draft / "wheels"
    wheels.mkdir()
    copied = [each for each in job.runtime if job.interpreter.is_ours or each.is_for_any]
    lines = [f"{path.as_uri()} --hash=sha256:{sha}\n" for path, sha in write_wheels(wheels, copied)]
    lines += [f"{pin.name}=={pin.version} {_hashes(pin)}\n" for pin in job.pins]
    _pip_install(job, "".join(lines), uv=uv, notify=notify, options=["--require-hashes"])
    if fetched := [each for each in job.runtime if each not in copied]:
        _pip_install(job, "".join(f"{each.name}=={each.version}\n" for each in fetched), uv=uv, notify=notify)
    delete_folder(wheels)
    (job.draft / "requirements.txt").unlink()
    _replace_interpreter(job.draft, job.interpreter.program, job.folder / "bin" / "python")
    packages = _installed_packages(site)
    locked = {pin.name for pin in job.pins}
    if absent := sorted(locked - packages.keys()):
        raise IntegrityError(f"{job.lock}: wanted {', '.join(absent[:5])} installed, found nothing of that name")
    manifest = EnvironmentManifest(
        packages=packages, added={name: packages[name] for name in sorted(packages.keys() - locked)},
        python=job.interpreter.version, size_bytes=folder_size(job.draft), seconds=time.monotonic() - began,
    )  # fmt: skip
    (job.draft / MANIFEST).write_bytes(canonical(manifest))
    _make_read_only(job.draft)
    return manifest


def _lay_out(draft: Path, interpreter: Interpreter) -> Path:
    """A virtual environment as `python -m venv` lays it out, without running a program of it."""
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


def _pip_install(
    job: Installation, requirements: str, *, uv: Uv, notify: Callable[[str], None], options: Sequence[str] = ()
) -> None:
    """Install into the draft with the base interpreter: that of the environment would run a package's `.pth`."""
    (job.draft / "requirements.txt").write_text(requirements, encoding="ascii")
    uv.run(
        "pip", "install", "--python", str(job.interpreter.program), "--prefix", str(job.draft), "--no-deps",
        "--no-build", "--break-system-packages", "--compile-bytecode", "--requirements", "requirements.txt", *options,
        folder=job.draft, what=job.lock, tick=lambda seconds: notify(f"installing {job.lock}: {seconds:.0f} s so far"),
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
