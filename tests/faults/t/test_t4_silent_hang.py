"""T4: a rank hangs inside a step while its process lives: found in 2 x its step + 10 s, named, resumed."""

import pytest
from tests.contracts.launcher.gangs import HEAD

pytestmark = pytest.mark.row("T4")
HANGING = (
    HEAD
    + """
import faulthandler
faulthandler.register(signal.SIGUSR1)
def wait_for_ever():
    time.sleep(600)
for number in range(12):
    step(number)
    time.sleep(0.05)
    if generation == 0 and number == 10:
        heartbeat.beat(phase="backward" if rank == 1 else "wait")
        wait_for_ever()
"""
)


def test_hang_is_found_and_the_one_who_is_behind_named(stand, end_of):
    stand.launcher.submit(stand.podset(HANGING, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": "1"}))
    end, events = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    told = next(event for event in events if event.kind == "note")
    assert "rank 1 made no progress" in told.text
    assert "after step 10, in phase 'backward'" in told.text
    assert all("wait_for_ever" in told.data["stacks"][rank] for rank in ("0", "1"))


def test_hang_without_restarts_left_has_its_own_class(stand, end_of):
    stand.launcher.submit(stand.podset(HANGING, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": "1"}, restarts=0))
    end, _ = end_of()
    assert (end.exit_code, end.retry, end.culprit) == (33, "same", 1), end
    assert "wait_for_ever" in end.evidence["stacks"]["1"]
