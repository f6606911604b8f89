"""Steps of a rank with workers are those without, wherever the cursor, the shares or the skipped samples jump."""

import random
from contextlib import closing

import pytest
import torch

from gangline.errors import ConfigError
from gangline.train.loop.batches import StepData

JUMPS = [
    (0, (), ()), (12, (), ()), (24, (), (4, 8)), (36, (), (4, 8)), (12, ((12, 24),), ()),
    (36, ((12, 24), (48, 60)), ()), (60, ((12, 24), (48, 60)), ()), (0, (), ()),
]  # fmt: skip
"""Cursor, skipped spans and shares of consecutive steps: on, rebalanced, rolled back, on, and from the beginning."""


class Drawing:
    def __len__(self):
        return 37

    def __getitem__(self, index):
        return {"index": torch.tensor(index), "drawn": torch.tensor(random.random())}


class Broken(Drawing):
    def __getitem__(self, index):
        return {"index": torch.zeros(index % 2 + 1)}


def make(data, *, workers, rank=0):
    return StepData(
        data, seed=3, global_batch=12, ranks=2, rank=rank, micro_batch=2, device=torch.device("cpu"), workers=workers,
        seeds_samples=True,
    )  # fmt: skip


def taken(workers, rank):
    found = []
    with closing(make(Drawing(), workers=workers, rank=rank)) as steps:
        for cursor, skipped, shares in JUMPS:
            span, batches = steps.step(cursor, list(skipped), shares)
            found.append((span, [(batch["index"].tolist(), batch["drawn"].tolist()) for batch in batches]))
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_what_was_read_ahead_is_dropped_where_the_next_step_is_another(rank):
    assert taken(1, rank) == taken(0, rank)


def test_draws_of_samples_change_none_of_the_rank():
    random.seed(5), torch.manual_seed(5)
    taken(0, 0)
    after = random.random(), float(torch.rand(()))
    random.seed(5), torch.manual_seed(5)
    assert after == (random.random(), float(torch.rand(())))


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_of_unlike_shapes_are_refused_alike(workers):
    with closing(make(Broken(), workers=workers)) as steps, pytest.raises(ConfigError, match="cannot be collated"):
        take_four(steps)


def take_four(steps):
    for cursor in range(0, 48, 12):
        list(steps.step(cursor, [])[1])


def test_closing_twice_or_before_the_first_step_is_well():
    steps = make(Drawing(), workers=1)
    steps.close()
    list(steps.step(0, [])[1])
    steps.close(), steps.close()
