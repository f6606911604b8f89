"""IN5: of 100 smokes on a busy machine 95 refuse a candidate that answers 30 % slower, and at most 5 an equal one.

The machine is simulated: its speed wanders, other work comes in bursts, and single answers are late.
"""

import math
import random

import pytest

from gangline.infer.turns import (
    FEWEST_GROUPS,
    GROUPS,
    ORDER,
    PER_TURN,
    SHARE,
    num_groups,
    percentile_99,
    spread_of_99,
    time_ratio,
)
from gangline.line.results.serve_gate import judge_serve, serve_metrics
from gangline.spec.config.infer_table import ServeGate

SEED = 106
WORSE = ServeGate(worse_percent=15)


def speeds(rng, count, *, memory, spread, bursts):
    """How much longer everything takes on the machine, request by request."""
    wander, left = 0.0, 0
    for _ in range(count):
        kept = math.exp(-1 / memory)
        wander = kept * wander + math.sqrt(1 - kept**2) * rng.gauss(0, spread)
        left = left - 1 if left else rng.randint(3, 25) if rng.random() < bursts else 0
        yield math.exp(wander) * (1.8 if left else 1.0)


def smoke(rng, slower, machine):
    """Turns of candidate and base as `infer.smoke` reports them."""
    turns = {"A": [], "B": []}
    machine_speeds = iter(list(speeds(rng, GROUPS * len(ORDER) * PER_TURN, **machine)))
    for letter in ORDER * GROUPS:
        seconds = 0.01 * (slower if letter == "A" else 1.0)
        late = [rng.expovariate(1 / 0.03) if rng.random() < 0.1 else 0.0 for _ in range(PER_TURN)]
        turns[letter].append([seconds * next(machine_speeds) * math.exp(rng.gauss(0, 0.25)) + each for each in late])
    own, base = ({"turns": each, "failed": 0, "memory_bytes": 1e8} for each in turns.values())
    return {"candidate": own, "base": base, "per_second": 50.0, "load": 9.0, "cores": 2, "problems": []}


def refusals(slower, machine):
    rng = random.Random(SEED)
    found = 0
    for _ in range(100):
        answer = smoke(rng, slower, machine)
        found += judge_serve(WORSE, answer, serve_metrics(answer, "run")).verdict == "no"
    return found


BUSY = [
    {"memory": 10, "spread": 0.15, "bursts": 0.01},
    {"memory": 100, "spread": 0.3, "bursts": 0.01},
    {"memory": 40, "spread": 0.3, "bursts": 0.02},
]


@pytest.mark.parametrize("machine", BUSY)
def test_thirty_percent_slower_is_refused(machine):
    assert refusals(1.3, machine) >= 95


@pytest.mark.parametrize("machine", BUSY)
def test_an_equal_one_is_not_refused(machine):
    assert refusals(1.0, machine) <= 5


def test_a_machine_that_is_too_restless_is_not_sure():
    turns = [[0.01], [0.03], [0.01], [0.03]]
    ratio = time_ratio(turns, [[0.01], [0.01], [0.012], [0.01]])
    assert ratio.value > 1.5
    assert not ratio.is_surely_above_one


def test_percentile_and_its_spread():
    assert percentile_99([float(each) for each in range(1, 201)]) == 198
    assert percentile_99([3.0]) == 3
    assert spread_of_99([[1.0], [2.0], [3.0], [5.0]]) == 2


def test_slow_answers_have_fewer_turns_but_enough():
    assert num_groups(0.001, 120) == GROUPS
    assert num_groups(60, 120) == FEWEST_GROUPS
    seconds = 0.5
    assert FEWEST_GROUPS < num_groups(seconds, 120) < GROUPS
    assert num_groups(seconds, 120) * len(ORDER) * PER_TURN * seconds / SHARE <= 120
