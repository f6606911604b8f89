"""T4: a rank hangs inside a step while its process lives: found in 2 x its step + 10 s, named, resumed."""

import re

import pytest
from tests.contracts.launcher.gangs import HEAD
from tests.faults.t.ranks import chance

pytestmark = pytest.mark.row("T4", full="100 hangs")
HANGING = (
    HEAD
    + """
STEPS = 12
import faulthandler
faulthandler.register(signal.SIGUSR1)
def wait_for_ever():
    time.sleep(600)
for number in range(STEPS):
    step(number)
    time.sleep(0.1)
    if generation == 0 and number == 10:
        heartbeat.beat(phase="backward" if rank == 1 else "wait")
        wait_for_ever()
"""
)
SILENT = re.compile(r"for (\S+) s .* \(2 x its step of (\S+) s \+ (\S+) s\)")


def test_hang_is_found_and_the_one_who_is_behind_named(stand, end_of):
    stand.launcher.submit(stand.podset(HANGING, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": "1"}))
    end, events = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    reported = next(event for event in events if event.kind == "note")
    assert "rank 1 made no progress" in reported.text
    assert "after step 10, in phase 'backward'" in reported.text
    assert all("wait_for_ever" in reported.data["stacks"][rank] for rank in ("0", "1"))


def test_a_stopped_process_is_named_though_it_waited_and_others_did_not(stand, end_of):
    """With DDP a rank waits for others inside its backward pass: by the heartbeats alone it would be to blame."""
    program = HANGING.replace(
        '"backward" if rank == 1 else "wait")\n', '"wait" if rank == 1 else "backward")\n'
        "        rank == 1 and os.kill(os.getpid(), signal.SIGSTOP)\n",
    )  # fmt: skip
    assert "SIGSTOP" in program
    stand.launcher.submit(stand.podset(program, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": "1"}))
    end, events = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    note = next(event for event in events if event.kind == "note").text
    assert "rank 1 made no progress" in note
    assert "its process is stopped by a signal" in note


@pytest.mark.slow
@pytest.mark.parametrize("number", range(99))
def test_the_one_who_hangs_is_always_the_one_who_is_named(stand, end_of, seed, number):
    """100 at full size, with the one above; after so many steps that two looks told what a step usually takes."""
    dice = chance("T4", seed + number)
    rank, step = dice.randrange(3), dice.randint(10, 29)
    program = HANGING.replace("number == 10", f"number == {step}").replace("rank == 1", f"rank == {rank}")
    program = program.replace("STEPS = 12", "STEPS = 30")
    stand.launcher.submit(stand.podset(program, ranks=3, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": "1"}))
    end, events = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    reported = next(event for event in events if event.kind == "note")
    assert f"rank {rank} made no progress" in reported.text
    assert f"after step {step}, in phase 'backward'" in reported.text
    silent, usual, _ = map(float, SILENT.search(reported.text).groups())
    assert silent <= 2 * usual + 10


def test_hang_without_restarts_left_has_its_own_class(stand, end_of):
    stand.launcher.submit(stand.podset(HANGING, env={"GANGLINE_WATCHDOG_EXTRA_SECONDS": "1"}, restarts=0))
    end, _ = end_of()
    assert (end.exit_code, end.retry, end.culprit) == (33, "same", 1), end
    assert "wait_for_ever" in end.evidence["stacks"]["1"]
