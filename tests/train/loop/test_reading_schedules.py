"""Gangs of any size with any number of workers, killed at seeded steps, take every sample once with equal draws."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.train.gang import ROOT
from tests.train.loop.test_prefetch import BATCH, STEPS, finished, plan_of, taken
from tests.train.sets.packed import put_dataset, source_of

from gangline.data.order import DatasetOrder, SetRows
from gangline.train.loop.prefetch import SampleDraws

pytestmark = [pytest.mark.row("DL2", full="100 schedules"), pytest.mark.timeout(300), pytest.mark.long]


def draw(number):
    """What trains on what: data sets, keys of the line, and ranks, workers and the killed step of each generation."""
    dice = random.Random(f"DL2 {number}")
    sets = [(dice.randint(4, 9), dice.randint(2, 7)) for _ in range(dice.choice((1, 1, 2)))]
    keys = {
        "order": dice.choice(("window", "window", "full", "file")), "window": dice.randint(1, 3),
        "parts": dice.choice((1, 1, 2, 3)),
    }  # fmt: skip
    lives = [(dice.randint(1, 4), dice.randint(0, 3), step) for step in sorted(dice.sample(range(2, STEPS + 1), 2))]
    return sets, keys, [*lives, (dice.randint(1, 4), dice.randint(0, 3), None)]


def wanted(sets, keys, seed):
    """Number and draws of the samples of each step, in one process."""
    own = [
        SetRows(name=f"set{each}", rows=(rows,) * shards, weight=each + 1.0) for each, (shards, rows) in enumerate(sets)
    ]
    order = DatasetOrder(own, seed=seed, global_batch=BATCH, **keys)
    draws, steps = SampleDraws(seed), {}
    with draws.apart():
        places = order.places(range(STEPS * BATCH))
        for position, number, shard, row in zip(
            range(STEPS * BATCH), places.sets.tolist(), places.shards.tolist(), places.rows.tolist(), strict=True
        ):
            draws.at(position)
            drawn = torch.tensor([random.random(), float(np.random.rand()), float(torch.rand(()))])
            sample = 1000 * number + shard * sets[number][1] + row
            steps.setdefault(position // BATCH + 1, []).append((sample, tuple(drawn.tolist())))
    return {step: sorted(samples) for step, samples in steps.items()}


@pytest.mark.parametrize("number", [0, 1, *(pytest.param(each, marks=pytest.mark.slow) for each in range(2, 100))])
def test_no_sample_is_lost_repeated_or_drawn_otherwise(make_gang, number):
    sets, keys, lives = draw(number)
    gang = make_gang(ROOT / "tests" / "train" / "sets")
    made = [
        put_dataset(gang.store, f"set{each}", shards=shards, rows=rows, first=1000 * each)
        for each, (shards, rows) in enumerate(sets)
    ]
    data = source_of(*made, weights=[each + 1.0 for each in range(len(made))], **keys)
    for generation, (world, workers, step) in enumerate(lives):
        plan = plan_of(replace(data, workers=workers), world)
        if step is None:
            finished(gang, plan)
        else:
            codes = gang.run(plan, CORES="8", STRIKE=f"{step % world}:{step}:{generation}")
            assert 137 in codes, (codes, gang.log())
    found, _ = taken(gang, 4)
    assert found == wanted(sets, keys, plan.seed)
