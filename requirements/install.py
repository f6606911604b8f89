"""Make `.venv` from the hashed locks beside this file; needs Python 3.11 or newer and nothing else.

    python3 requirements/install.py run        what `make demo` and users need
    python3 requirements/install.py dev        the same and the tools of `make test`

Safe to interrupt and to run again: the stamp inside `.venv` is written last, and names the locks it was made from.
`TORCH_VERSION` (2.11, 2.13) takes an older torch: its lock beside this file has what differs from the others.
`TORCH_BACKEND` (cpu, cu130, rocm6.4, auto, ...) is passed on to the installer, which then takes torch from that
backend's own index; torch's wheels are then vouched for by that index, not by our hashes; everything else still is.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TORCH_FAMILY = re.compile(r"^(torch==|triton==|cuda-|nvidia-)")
SIZE = "about 2.9 GB to download, 5.4 GB on disk, nearly all of it torch's CUDA libraries (Linux, x86-64)"


def main(profile: str) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - this file meets the user's python first
        found = ".".join(map(str, sys.version_info[:3]))
        stop(
            f"gangline needs Python 3.11 or newer, found {found} at {sys.executable}; run `make PYTHON=python3.12 ...`"
        )
    backend, locks = os.environ.get("TORCH_BACKEND", ""), locks_of(profile, os.environ.get("TORCH_VERSION", ""))
    if stamped(profile, backend):
        return
    began = time.monotonic()
    wanted = together(*map(entries, locks))
    say(f"{len(wanted)} packages with hashes; {'torch from ' + backend if backend else SIZE}")
    make_environment()
    install(wanted, backend)
    stamp_path(profile).write_text(stamp(profile, backend))
    say(f".venv ready, hashes checked, torch {torch_version()}", time.monotonic() - began)


def make_environment() -> None:
    """A fresh environment with the installer in it, unless a working one is there."""
    works = (
        PYTHON.exists()
        and subprocess.run([PYTHON, "-c", "import pip"], capture_output=True, check=False).returncode == 0
    )
    if not works:
        say("making .venv")
        shutil.rmtree(VENV, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True, text=True, check=False)
        if made.returncode:
            stop(f"python -m venv failed: {made.stdout.strip()[-300:]}\nOn Debian and Ubuntu: apt install python3-venv")
    run("the installer", [PYTHON, "-m", "pip", "install", "-q", "--require-hashes", "-r", HERE / "bootstrap.txt"])


def install(wanted: list[str], backend: str) -> None:
    """Everything the locks name, then gangline itself, editable."""
    uv = [VENV / "bin" / "uv", "pip", "install", "--quiet", "--python", PYTHON]
    held = VENV / "torch-backend"
    if held.exists() and held.read_text() != backend:
        uv += ["--reinstall-package", "torch"]
    hashed = [entry for entry in wanted if not (backend and TORCH_FAMILY.match(entry))]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "requirements.txt"
        file.write_text("".join(hashed))
        run("packages", [*uv, "--compile-bytecode", "--require-hashes", "--no-deps", "-r", file])
    if backend:
        torch = version_of(wanted, "torch")
        run(f"torch for {backend}", [*uv, "--compile-bytecode", f"--torch-backend={backend}", f"torch=={torch}"])
    held.write_text(backend)
    run("gangline", [*uv, "--no-deps", "--no-build-isolation", "-e", ROOT])
    # Ranks in a sandbox may not write the bytecode of an editable installation, and would compile it in every run.
    run("its bytecode", [PYTHON, "-m", "compileall", "-q", ROOT / "src" / "gangline"])


def locks_of(profile: str, torch: str) -> list[Path]:
    """Lock of the profile, then that of the requested torch where it is not the profile's own."""
    newest = version_of(entries(HERE / f"{profile}.txt"), "torch").rpartition(".")[0]
    others = {path.stem.removeprefix("torch-"): path for path in sorted(HERE.glob("torch-*.txt"))}
    if torch not in ("", newest, *others):
        stop(f"TORCH_VERSION: wanted one that has a lock ({', '.join([*others, newest])}), found {torch}", code=2)
    return [HERE / f"{profile}.txt", *([others[torch]] if torch in others else [])]


def together(locked: list[str], other: Sequence[str] = ()) -> list[str]:
    """`locked` with a torch of its own; or with that of `other`, and whatever else that lock has."""
    names = {name_of(entry) for entry in other}
    kept = [entry for entry in locked if not (other and TORCH_FAMILY.match(entry)) and name_of(entry) not in names]
    return [*kept, *other]


def entries(lock: Path) -> list[str]:
    """The lock's requirements, each with its hashes."""
    return re.findall(r"^\S+==.*\n(?:[ \t]+.*\n)*", lock.read_text(), re.MULTILINE)


def name_of(entry: str) -> str:
    return entry.partition("==")[0]


def version_of(wanted: list[str], name: str) -> str:
    return next(entry for entry in wanted if name_of(entry) == name).split()[0].partition("==")[2]


def stamped(profile: str, backend: str) -> bool:
    """Was this profile, or the larger one, installed from the locks as they are now?"""
    held = ("run", "dev") if profile == "run" else ("dev",)
    return PYTHON.exists() and any(
        stamp_path(each).exists() and stamp_path(each).read_text() == stamp(each, backend) for each in held
    )


def stamp_path(profile: str) -> Path:
    return VENV / f"installed-{profile}"


def stamp(profile: str, backend: str) -> str:
    locks = locks_of(profile, os.environ.get("TORCH_VERSION", ""))
    parts = [HERE / "bootstrap.txt", *locks, ROOT / "pyproject.toml"]
    return sha256(b"".join(part.read_bytes() for part in parts) + f"{backend} {ROOT}".encode()).hexdigest()


def torch_version() -> str:
    code = "from importlib.metadata import version; print(version('torch'))"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def run(what: str, command: list[object]) -> None:
    """One quiet step of the setup, with a sign of life: seconds, and what the disk has taken."""
    began, free = time.monotonic(), shutil.disk_usage(ROOT).free
    child = subprocess.Popen([str(part) for part in command])
    try:
        while True:
            try:
                child.wait(1 if sys.stdout.isatty() else 15)
                break
            except subprocess.TimeoutExpired:
                taken = max(0.0, (free - shutil.disk_usage(ROOT).free) / 1e9)
                alive(f"setup     {what} {time.monotonic() - began:.0f} s, {taken:.1f} GB on disk")
    except KeyboardInterrupt:
        child.terminate()
        stop(f"interrupted while installing {what}; the same command goes on from here", code=130)
    if child.returncode:
        stop(f"could not install {what} (exit {child.returncode}); the same command tries again, what is done stays")


def alive(text: str) -> None:
    """Progress in place on a terminal, a line now and then elsewhere."""
    print(f"\r{text}\x1b[K" if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True)


def say(text: str, seconds: float | None = None) -> None:
    start = "\r\x1b[K" if sys.stdout.isatty() else ""
    print(f"{start}setup     {text}" + ("" if seconds is None else f"  {seconds:.0f} s"), flush=True)


def stop(text: str, *, code: int = 1) -> NoReturn:
    print(f"setup     {text}", file=sys.stderr, flush=True)
    raise SystemExit(code)


if __name__ == "__main__":
    if sys.argv[1:] not in (["run"], ["dev"]):
        stop(f"wanted `run` or `dev`, found {sys.argv[1:]}", code=2)
    main(sys.argv[1])
