"""A virtual environment with another framework, made once from its example's lock, outside the tree."""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.tools.__main__ import tools_folder

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 900


def python_with(name: str) -> Path:
    """Interpreter that has what `examples/<name>/requirements.lock` names, and gangline with all it needs.

    Skips where it cannot be installed.
    """
    lock = ROOT / "examples" / name / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    folder = tools_folder().parent / "frameworks" / f"{name}-{digest}-{sys.version_info[0]}{sys.version_info[1]}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _install(folder, python, lock)
        (folder / "ready").touch()
    _lean_on_this_environment(folder)
    return python


def _install(folder: Path, python: Path, lock: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, folder],
        [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "--no-deps", "-r", lock],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"{lock.parent.name} cannot be installed: {error}")
        if done.returncode:
            pytest.skip(f"{lock.parent.name} cannot be installed here: {done.stderr.strip()[-300:]}")


def _lean_on_this_environment(folder: Path) -> None:
    """What the framework does not bring comes from the environment of these tests; its own versions come first."""
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "gangline-tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n")
