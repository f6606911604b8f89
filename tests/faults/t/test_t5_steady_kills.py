"""T5: ranks die at a steady rate; most of the held time still goes into steps that count."""

import time
from contextlib import suppress

import pytest
from tests.faults.t.ranks import RUN, await_step, chance, effective_share, finish, recorded_plan, submit

from gangline.errors import UsageError
from gangline.faults.process_faults import kill_rank
from gangline.spec.plan import Recovery

pytestmark = [pytest.mark.row("T5", full="a kill every 120 s for 30 min, every 600 s for 2 h"), pytest.mark.long]
ENDLESS = 1_000_000
MINUTE = 60.0


@pytest.mark.parametrize(
    ("every", "seconds", "share"),
    [
        (2.0, 4.5, 0.0),
        pytest.param(2 * MINUTE, 30 * MINUTE, 0.90, marks=[pytest.mark.slow, pytest.mark.timeout(2400)]),
        pytest.param(10 * MINUTE, 120 * MINUTE, 0.97, marks=[pytest.mark.slow, pytest.mark.timeout(8400)]),
    ],
)
def test_time_is_spent_on_steps_that_count(stand, seed, every, seconds, share):
    dice = chance("T5", seed)
    home = submit(stand, recorded_plan(steps=ENDLESS, every=5, recovery=Recovery(max_events=1000)), PACE="0.1")
    await_step(home, 1, generation=0)
    kills, start = 0, time.monotonic()
    while (kills + 1) * every < seconds:
        time.sleep(max(0.0, start + (kills + 1) * every - time.monotonic()))
        with suppress(UsageError):  # it is between two generations: that death has been had already
            kill_rank(home, dice.randrange(2))
        kills += 1
    await_step(home, 1, generation=1, seconds=every + 60)
    time.sleep(max(0.0, start + seconds - time.monotonic()))
    stand.launcher.cancel(RUN, reason="long enough", save=True)
    end = finish(stand)
    assert 1 <= end.restarts <= kills, end
    assert end.exit_code == 70, end
    assert end.ledger["restart"] > 0
    found = effective_share(end)
    print(f"T5 a kill every {every:g} s for {seconds:g} s: effective {found:.4f}, ledger {end.ledger}")
    assert found > share
