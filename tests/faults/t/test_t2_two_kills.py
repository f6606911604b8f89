"""T2: a second kill while the gang starts again, two kills in one second: no hang, one charge an event."""

import pytest
from tests.contracts.launcher.gangs import HEAD, poll

from gangline.launch.local.tail import Tail

pytestmark = pytest.mark.row("T2")


def charges(stand):
    events = Tail(stand.root / "run-1" / "keeper-0.jsonl").events()
    return [event["charged"] for event in events if event["event"] == "restart"]


def test_kill_inside_the_restart_belongs_to_the_same_event(stand, end_of):
    program = HEAD + "generation >= 2 or rank == 0 or os.kill(os.getpid(), 9); generation >= 2 or time.sleep(60)"
    stand.launcher.submit(stand.podset(program, restarts=1))
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (0, 2), end
    assert charges(stand) == [True, False]


def test_two_ranks_killed_at_once_are_one_event(stand, end_of):
    stand.launcher.submit(stand.podset(HEAD + "generation or os.kill(os.getpid(), 9)", restarts=1))
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    assert charges(stand) == [True]


def test_gang_that_dies_at_every_start_comes_to_an_end(stand, end_of):
    stand.launcher.submit(stand.podset(HEAD + "os.kill(os.getpid(), 9)", restarts=1))
    end, _ = end_of()
    assert (end.exit_code, end.retry) == (30, "never"), end
    assert "all 1 restarts" in end.reason
    assert charges(stand).count(True) == 1
    poll(lambda: not stand.processes())
