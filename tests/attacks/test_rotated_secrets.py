"""Secret files that change while model code runs, by a rename or by links that point elsewhere, stay hidden."""

from pathlib import Path

import pytest
from tests.attacks.machine_users import (
    ENGINES,
    ENGINES_IN_TURN,
    drive,
    open_folder,
    place_of_a_user,
    plant,
    require_users,
)

pytestmark = [pytest.mark.row("P5"), pytest.mark.row("P10"), pytest.mark.timeout(240)]
DRIVER = Path(__file__).with_name("drive_attacks.py")


@pytest.mark.parametrize("engine", ENGINES_IN_TURN)
def test_a_rotated_secret_stays_hidden(engine):
    user, bubblewrap = ENGINES[engine]
    require_users(bubblewrap=bubblewrap)
    with place_of_a_user() as place, open_folder() as outside:
        canary = plant(place, hidden=bubblewrap)
        found = drive(place, DRIVER, "rotated_secrets", "own", str(outside), user=user, bubblewrap=bubblewrap)
    assert canary not in str(found), found
    assert found["loot"] == [[]], "it looked, before and after"
    assert found["neighbour"], "what lies elsewhere is still seen"
