"""T1: a rank is killed in the middle of a step; the gang resumes from its checkpoint and loses one interval at most."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.faults.t.ranks import (
    at_step,
    await_step,
    chance,
    finish,
    hurry,
    recorded_plan,
    samples_by_step,
    submit,
    wanted_samples,
)

from gangline.faults.process_faults import kill_rank, last_step
from gangline.launch.local.follower import Tail
from gangline.spec.plan import Recovery

pytestmark = pytest.mark.row("T1", full="300 kills")
EVERY = 2
STEPS_A_KILL = 40
"""Many more than are awaited: on a busy machine the gang runs on while the test looks."""
CAMPAIGNS = [
    pytest.param(0, 1, marks=pytest.mark.long),
    *(pytest.param(number, 30, marks=pytest.mark.slow) for number in range(1, 11)),
]
"""300 kills in all at full size."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("number", "kills"), CAMPAIGNS)
def test_gang_of_real_ranks_survives_every_death(stand, seed, number, kills):
    dice = chance("T1", seed + number)
    steps = kills * STEPS_A_KILL
    home = submit(
        stand, recorded_plan(steps=steps, every=EVERY, recovery=Recovery(max_events=kills)), PACE="0.05"
    )  # fmt: skip
    reached, seconds = 0, []
    for generation in range(kills):
        reached = await_step(home, reached + dice.randint(1, 4), generation=generation)["step"]
        faulty = time.monotonic()
        kill_rank(home, dice.randrange(2))
        reached = max(reached, last_step(home, 0) or 0)
        again = await_step(home, 1, generation=generation + 1)
        seconds.append(again["mono"] - faulty)
        assert reached - (again["step"] - 1) <= EVERY + 1, "more than one interval, and the step that was under way"
        reached = again["step"]
    hurry(home)
    end = finish(stand)
    assert (end.exit_code, end.restarts) == (0, kills), end
    assert samples_by_step(home, global_batch=8) == wanted_samples(steps, global_batch=8)
    events = Tail(home / "keeper-0.jsonl").events()
    assert all("ended by signal 9" in each["reason"] for each in events if each["event"] == "restart")
    assert end.ledger["compute"] > 0
    assert number == 0 or sorted(seconds)[-1] <= 15, "kill to first new step"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_death_of_the_warm_parent_is_one_event_like_any_other(stand, end_of):
    home = stand.root / "run-1"
    submit(stand, recorded_plan(steps=400, every=EVERY), PACE="0.02")
    at_step(home, 1, EVERY)
    parents = {int(field) for pid in stand.processes() if (field := _parent(pid)) and _is_warm(int(field))}
    for pid in parents:
        os.kill(pid, signal.SIGKILL)
    hurry(home)
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    assert parents


def _parent(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[1] if stat.exists() else None


def _is_warm(pid):
    return b"gangline.train.rank.warm_parent" in Path(f"/proc/{pid}/cmdline").read_bytes()
