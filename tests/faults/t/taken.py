"""What ranks of a struck gang took of their data: what they say, and what they really took."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain

from tests.train.trained import gaps, left_by

from gangline.line.results.training_summary import read_training
from gangline.spec.measurements import Samples
from gangline.train.loop.sample_order import SampleOrder

GATE = 1e-5
"""By how much the weights of two trainings may differ, of their norm."""


def assert_trained(gang, plan, wanted):
    """To the weights `wanted`, of the same data, all of it once."""
    assert max(gaps(left_by(gang), wanted)) <= GATE
    assert_samples(gang, plan.world_size, trained=plan.steps * plan.global_batch)
    assert_taken_once(gang, plan)


def assert_samples(gang, world_size, **fate):
    """Each once, by what ranks say, but for what was left out on purpose."""
    ranks = gang.home / "out" / "ranks"
    first, *others = [(ranks / f"{rank}.jsonl").read_bytes() for rank in range(world_size)]
    found = read_training([first], peers=others).samples
    assert replace(found, again=0) == Samples(**fate), found


def assert_taken_once(gang, plan):
    """By what the ranks really took of their data: of a step that was done again, the last time counts."""
    steps: dict[int, dict[int, list[int]]] = {}
    for rank in range(plan.world_size):
        lines = [json.loads(line) for line in (gang.home / f"samples-{rank}.jsonl").read_text().splitlines()]
        latest = {line["step"]: line["generation"] for line in lines}
        for line in lines:
            if line["generation"] == latest[line["step"]]:
                taken = steps.setdefault(line["step"], {}).setdefault(rank, [])
                taken.append(line["sample"])
    order, batch = SampleOrder(num_samples=37, seed=plan.seed), plan.global_batch
    for step in range(1, plan.steps + 1):
        places = {plan.mesh.data_rank(rank): samples for rank, samples in steps[step].items()}
        assert all(places[plan.mesh.data_rank(rank)] == samples for rank, samples in steps[step].items())
        wanted = [order.sample(position) for position in range((step - 1) * batch, step * batch)]
        assert Counter(chain(*places.values())) == Counter(wanted), f"step {step}"
