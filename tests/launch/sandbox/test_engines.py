"""Every engine, as root and as an ordinary user: what model code finds, and what a gang can do with its store."""

import json
import os
from pathlib import Path

import pytest
from tests.attacks.canaries import Canaries, hunts
from tests.attacks.machine_users import CASES, NOBODY, drive, place_of_a_user, require_users

from gangline.launch.sandbox.engines import UIDS

DRIVER = Path(__file__).with_name("drive.py")


@pytest.fixture
def place():
    with place_of_a_user() as folder:
        yield folder


@pytest.fixture
def canaries(place):
    require_users(bubblewrap=False)
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
    require_users(bubblewrap=bubblewrap)
    key = canaries.plant(place / "repo" / "gangs" / "of-the-other-trust" / "secrets" / "checkpoint-key")
    os.chown(key, UIDS[trust != "own"], UIDS[trust != "own"])
    (place / "hunter.py").write_text(canaries.hunter())
    reported = drive(place, DRIVER, trust, user=user, bubblewrap=bubblewrap, TOKEN=canaries.values[0])
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
