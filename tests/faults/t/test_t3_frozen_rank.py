"""T3: a rank stands still for a while: a short stop is nothing, a long one is declared and ends in a new generation."""

import time

import pytest
from tests.contracts.launcher.gangs import HEAD, STEPPER, poll
from tests.faults.t.ranks import at_step

from gangline.faults.process_faults import freeze_rank, last_step

pytestmark = pytest.mark.row("T3", full="stops of 5 s and 60 s, 500 gangs without a fault")
STEPPING = HEAD + "number = 0\nwhile not os.path.exists('stop'): number += 1; step(number); time.sleep(0.05)"


@pytest.mark.parametrize(("seconds", "extra"), [(1.5, "20"), pytest.param(5.0, "10", marks=pytest.mark.slow)])
def test_short_stop_is_not_death(stand, end_of, seconds, extra):
    home = stand.root / "run-1"
    stand.launcher.submit(stand.podset(STEPPING, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": extra}))
    at_step(home, 1, 30)
    freeze_rank(home, 1, seconds)
    frozen = last_step(home, 1)
    at_step(home, 1, frozen + 3)
    (home / "code" / "stop").touch()
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (0, 0), end


@pytest.mark.parametrize("extra", [1.5, pytest.param(10.0, marks=pytest.mark.slow)])
def test_long_stop_is_declared_by_name_and_ends_in_a_new_generation(stand, end_of, extra):
    home = stand.root / "run-1"
    stand.launcher.submit(stand.podset(STEPPING, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": str(extra)}))
    at_step(home, 1, 25)
    faulty = time.monotonic()
    freeze_rank(home, 1, 60)
    poll(lambda: stand.launcher.status("run-1").generation == 1)
    assert time.monotonic() - faulty <= extra + 10, "declared within 10 s of the limit"
    at_step(home, 1, 1)
    (home / "code" / "stop").touch()
    end, events = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    reported = next(event for event in events if event.kind == "note")
    assert "rank 1 made no progress" in reported.text
    assert reported.data["stacks"]["1"].startswith("stopped by a signal")
    assert end.ledger["stalled"] >= extra


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(10))
def test_gangs_that_nothing_befalls_are_never_declared_dead(stand, number):
    """500 at full size."""
    names = [f"clean-{number}-{each}" for each in range(50)]
    for name in names:
        stand.launcher.submit(stand.podset(STEPPER, name))
        end = list(stand.launcher.follow(name))[-1].end
        assert (end.exit_code, end.restarts) == (0, 0), end
