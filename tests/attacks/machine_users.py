"""Drivers as several users of a machine, with bubblewrap and without: each engine of the sandbox in turn."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import pytest
from tests.attacks.canaries import plain_python

ROOT = Path(__file__).parents[2]
NOBODY = 65501
CASES = {
    ("root", True): "bubblewrap",
    ("root", False): "user",
    ("root of a container", True): "user",
    ("ordinary", True): "bubblewrap",
    ("ordinary", False): "none",
}
"""(user, whether bubblewrap is on the path) -> name of the engine."""
ENGINES = {"bubblewrap-as-root": ("root", True), "another-user": ("root", False), "bubblewrap": ("ordinary", True)}
ENGINES_IN_TURN = [pytest.param(each, marks=() if each == "bubblewrap" else pytest.mark.long) for each in ENGINES]
"""The default suite has the engine under which most is to be gained: model code runs as the driver's user."""
SETPRIV = shutil.which("setpriv") or ""
BECOME = {
    "root": [],
    "root of a container": [SETPRIV, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],  # mounts are forbidden
    "ordinary": [SETPRIV, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"],
}


def require_users(*, bubblewrap: bool) -> None:
    """Skip the test where this machine cannot start drivers of other users."""
    if not plain_python():
        pytest.skip("needs a python of this version in /usr/bin, which other users may start: apt-get install python3")
    if os.geteuid() != 0:
        pytest.skip("needs root, to become other users")
    if bubblewrap and not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")


def plant(place: Path, *, hidden: bool) -> str:
    """A secret in the driver's home: closed to other users, or where model code must not see it, open to all."""
    canary = f"canary-{token_hex(12)}"
    path = place / "home" / ".ssh" / "id"
    path.parent.mkdir()
    path.write_text(canary)
    path.chmod(0o644 if hidden else 0o600)
    return canary


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder in no home and no temporary one, which everybody may look into and the driver may write to."""
    with tempfile.TemporaryDirectory(prefix="gangline-open-", dir="/opt") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def place_of_a_user() -> Iterator[Path]:
    """A folder that every user may enter, with a home and a repository of whoever drives."""
    with tempfile.TemporaryDirectory(prefix="gangline-place-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for each in ("home", "repo"):
            (folder / each).mkdir()
        yield folder


def drive(place: Path, script: Path, *words: str, user: str, bubblewrap: bool, **environ: str) -> dict:
    """The last line, JSON, of a script that `user` starts with `place` and `words`."""
    if user == "ordinary":
        given = [Path(each) for each in words if each.startswith("/")]
        for path in (place, *place.rglob("*"), *given):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    search = "/usr/bin:/bin" if bubblewrap else str(_tools_without_bubblewrap(place))
    packages = [each for each in sys.path if each.endswith("site-packages")]
    environ |= {
        "PATH": f"{search}:{Path(sys.executable).parent}", "HOME": str(place / "home"), "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ":".join([*packages, str(ROOT / "src"), str(ROOT)]),
    }  # fmt: skip
    command = [*BECOME[user], plain_python(), str(script), str(place), *words]
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_as_nobody(code: str, *words: str, cwd: Path | str = "/") -> str:
    """What a few lines of Python print that an ordinary user runs with gangline."""
    packages = [each for each in sys.path if each.endswith("site-packages")]
    done = subprocess.run(
        [plain_python(), "-c", code, *words], cwd=cwd, user=NOBODY, group=NOBODY, extra_groups=(), check=False,
        env={"PYTHONPATH": ":".join([*packages, str(ROOT / "src")])}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _tools_without_bubblewrap(place: Path) -> Path:
    folder = place / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("python3", "sh", "git"):
        if not (folder / name).exists():
            (folder / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
    return folder
