"""Every engine, as root and as an ordinary user: what model code finds, and what a gang can do with its store."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.attacks.canaries import Canaries, hunts, plain_python

from gangline.launch.sandbox.engines import UIDS

ROOT = Path(__file__).parents[3]
NOBODY = 65501
CASES = {
    ("root", True): "bubblewrap",
    ("root", False): "user",
    ("root of a container", True): "user",
    ("ordinary", True): "bubblewrap",
    ("ordinary", False): "none",
}
SETPRIV = shutil.which("setpriv") or ""
BECOME = {
    "root": [],
    "root of a container": [SETPRIV, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"],  # mounts are forbidden
    "ordinary": [SETPRIV, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"],
}


@pytest.fixture
def place():
    """A folder that every user may enter, with a home and a repository of whoever drives."""
    with tempfile.TemporaryDirectory(prefix="gangline-place-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for each in ("home", "repo"):
            (folder / each).mkdir()
        yield folder


def drive(place: Path, user: str, trust: str, *, bubblewrap: bool, canaries: Canaries) -> dict:
    (place / "hunter.py").write_text(canaries.hunter())
    if user == "ordinary":
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    search = "/usr/bin:/bin" if bubblewrap else str(tools_without_bubblewrap(place))
    environ = {
        "PATH": search, "HOME": str(place / "home"), "TOKEN": canaries.values[0],
        "PYTHONPATH": ":".join([*site_packages(), str(ROOT / "src"), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [*BECOME[user], plain_python(), str(Path(__file__).with_name("drive.py")), str(place), trust]
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def tools_without_bubblewrap(place: Path) -> Path:
    folder = place / "bin"
    folder.mkdir()
    for name in ("python3", "sh"):
        (folder / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
    return folder


def site_packages() -> list[str]:
    return [each for each in sys.path if each.endswith("site-packages")]


@pytest.fixture
def canaries(place):
    if not plain_python():
        pytest.skip("needs a python of this version in /usr/bin, which other users may start: apt-get install python3")
    if os.geteuid() != 0:
        pytest.skip("needs root, to become other users")
    made = Canaries(place)
    made.new()
    made.plant(place / "home" / ".ssh" / "id")
    made.plant(place / "repo" / "store" / "runs" / "other" / "secret", mode=0o600)
    made.plant(place / "repo" / "gangs" / "another" / "secrets" / "checkpoint-key")
    made.out_of_reach += made.paths
    return made


@pytest.mark.parametrize("trust", ["own", "fork"])
@pytest.mark.parametrize(("user", "bubblewrap"), CASES)
def test_engine(place, canaries, user, bubblewrap, trust):
    if bubblewrap and not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    key = canaries.plant(place / "repo" / "gangs" / "of-the-other-trust" / "secrets" / "checkpoint-key")
    os.chown(key, UIDS[trust != "own"], UIDS[trust != "own"])
    reported = drive(place, user, trust, bubblewrap=bubblewrap, canaries=canaries)
    assert reported["engine"] == CASES[user, bubblewrap], reported["text"]
    if reported["engine"] == "none":
        demand_plain(reported, trust)
        return
    once, rank = hunts(reported["once"])[0], json.loads(reported["word"])
    owner = NOBODY if user == "ordinary" else UIDS[trust == "own"]
    for word in (once, rank):
        assert (word["found"], word["written"], word["uid"]) == ([], [], owner)
    assert (reported["exit"], reported["kept"], reported["owner"]) == (0, "kept", owner), reported["reason"]
    assert reported["log"].count("StorageError") == 3, "of the store it writes its own prefix alone"
    assert "WROTE" not in reported["log"]
    assert "SHARED" in reported["log"], "workers of a rank share memory and semaphores"
    assert canaries.carried_off(place) == []


def demand_plain(reported: dict, trust: str) -> None:
    """Without an engine own code is a program of its user, and a fork's does not run."""
    if trust == "fork":
        code, text = reported["refused"]
        assert code == 50
        assert text == (
            "wanted a sandbox for the model code of a fork's commit, found none: bubblewrap is not installed;"
            " apt install bubblewrap"
        )
        assert "once" not in reported
    else:
        assert reported["exit"] == 0
        assert hunts(reported["once"])[0]["found"], "nothing is hidden, and nobody says so"
