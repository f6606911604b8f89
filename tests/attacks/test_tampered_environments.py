"""Wheels of a lock that write what Python or gangline believes of an environment: no folder of the driver opens."""

from pathlib import Path

import pytest
from tests.attacks.machine_users import ENGINES, ENGINES_IN_TURN, drive, place_of_a_user, plant, require_users

pytestmark = [pytest.mark.row("P5"), pytest.mark.row("P8"), pytest.mark.timeout(240)]
DRIVER = Path(__file__).with_name("drive_attacks.py")


@pytest.mark.parametrize("trust", [pytest.param("own", marks=pytest.mark.slow), "fork"])
@pytest.mark.parametrize("engine", ENGINES_IN_TURN)
def test_no_file_of_a_wheel_opens_a_hidden_folder(engine, trust):
    user, bubblewrap = ENGINES[engine]
    require_users(bubblewrap=bubblewrap)
    with place_of_a_user() as place:
        canary = plant(place, hidden=bubblewrap)
        found = drive(place, DRIVER, "tampered_environment", trust, user=user, bubblewrap=bubblewrap)
    assert canary not in str(found), found
    code, text = found["wheel"]
    assert (code, text.endswith("found pyvenv.cfg of evil-1.0; lock another version of it")) == (50, True), text
    if bubblewrap:
        assert found["tampered"] == "ran []", "an environment that was changed since shows nothing more"
    else:
        assert found["tampered"].startswith("PermissionError")
    assert len(found["left"]) == 2, "the environment of the good lock, and its manifest"
