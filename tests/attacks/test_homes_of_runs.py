"""Runs that may not be published leave things in their home: a run that may be published finds none of them."""

from pathlib import Path

import pytest
from tests.attacks.machine_users import ENGINES, ENGINES_IN_TURN, drive, place_of_a_user, plant, require_users

pytestmark = [pytest.mark.row("P5"), pytest.mark.timeout(300)]
DRIVER = Path(__file__).with_name("drive_attacks.py")


@pytest.mark.parametrize("engine", ENGINES_IN_TURN)
def test_what_is_published_was_computed_from_no_leftovers(engine):
    user, bubblewrap = ENGINES[engine]
    require_users(bubblewrap=bubblewrap)
    with place_of_a_user() as place:
        plant(place, hidden=bubblewrap)
        found = drive(place, DRIVER, "poisoned_home", "own", user=user, bubblewrap=bubblewrap)
    words, message, left = found["first"]
    assert (words, left) == (["nothing"], []), "an experiment, a dirty tree and another branch have homes of their own"
    assert message.startswith("cheap 1: ")
    words, message, left = found["again"]
    if bubblewrap:
        assert words == [], "what its own branch left may be read, and is not published"
        assert [each.rpartition("/")[2] for each in left] == ["left.txt"]
        assert message.startswith("it read what an earlier run left in the home of its branch: ")
        assert "/published/left.txt; with sandbox.home" in message
    else:
        assert (words, left) == (["nothing"], []), (
            "other own commits could write there, so each begins with an empty one"
        )
    assert found["empty"].startswith("cheap ")
