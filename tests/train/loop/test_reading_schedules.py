"""Gangs of any size with any number of workers, killed at seeded steps, take every sample once with equal draws."""

import random
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.train.gang import ROOT
from tests.train.loop.test_prefetch import BATCH, STEPS, finished, plan_of, taken
from tests.train.sets.packed import put_dataset, source_of

from gangline.data.order import DatasetOrder, SetRows
from gangline.train.loop.batches import StepData
from gangline.train.loop.prefetch import SampleDraws

pytestmark = [pytest.mark.row("DL2", full="100 schedules"), pytest.mark.timeout(300), pytest.mark.long]


def draw(number):
    """What trains on what: data sets, keys of the line, and ranks, workers and the killed step of each generation.

    Numbers from 100 on have 5 to 7 ranks, those before 1 to 4.
    """
    worlds = (5, 7) if number >= 100 else (1, 4)
    dice = random.Random(f"DL2 {number}")
    sets = [(dice.randint(4, 9), dice.randint(2, 7)) for _ in range(dice.choice((1, 1, 2)))]
    keys = {
        "order": dice.choice(("window", "window", "full", "file")), "window": dice.randint(1, 3),
        "parts": dice.choice((1, 1, 2, 3)),
    }  # fmt: skip
    lives = [(dice.randint(*worlds), dice.randint(0, 3), step) for step in sorted(dice.sample(range(2, STEPS + 1), 2))]
    return sets, keys, [*lives, (dice.randint(*worlds), dice.randint(0, 3), None)]


def order_of(sets, keys, seed):
    own = [
        SetRows(name=f"set{each}", rows=(rows,) * shards, weight=each + 1.0) for each, (shards, rows) in enumerate(sets)
    ]
    return DatasetOrder(own, seed=seed, global_batch=BATCH, **keys)


def wanted(sets, keys, seed):
    """Number and draws of the samples of each step, in one process."""
    order, draws, steps = order_of(sets, keys, seed), SampleDraws(seed), {}
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


class Numbered:
    """Samples that know their number in their set, and draw."""

    def __init__(self, sets):
        self.numbers = [1000 * each + row for each, (shards, rows) in enumerate(sets) for row in range(shards * rows)]

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        drawn = torch.tensor([random.random(), float(np.random.rand()), float(torch.rand(()))])
        return {"number": self.numbers[index], "drawn": drawn}


def read_steps(steps, first, last):
    """(step, number and draws of its samples) of one rank."""
    for step in range(first, last):
        _, batches = steps.step(step * BATCH, ())
        for batch in batches:
            yield step + 1, list(zip(batch["number"].tolist(), map(tuple, batch["drawn"].tolist()), strict=True))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # 3 workers are more than some machines have cores
@pytest.mark.parametrize(
    "number", [*range(100, 103), *(pytest.param(each, marks=pytest.mark.slow) for each in range(103, 150))]
)
def test_five_to_seven_ranks_of_one_process_take_every_sample_once(number):
    sets, keys, lives = draw(number)
    found, first = {}, 0
    for world, workers, killed in lives:
        found = {step: samples for step, samples in found.items() if step <= first}
        for rank in range(world):
            data = StepData(
                Numbered(sets), seed=1, global_batch=BATCH, ranks=world, rank=rank, micro_batch=2,
                device=torch.device("cpu"), order=order_of(sets, keys, 1), workers=workers, seeds_samples=True,
            )  # fmt: skip
            with closing(data):
                for step, samples in read_steps(data, first, killed or STEPS):
                    found.setdefault(step, []).extend(samples)
        first = (killed or STEPS) // 3 * 3
    assert {step: sorted(samples) for step, samples in found.items()} == wanted(sets, keys, 1)


@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(each, marks=pytest.mark.slow) for each in (*range(2, 100), 100, 101))]
)
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
    found, _ = taken(gang, 7)
    assert found == wanted(sets, keys, plan.seed)
