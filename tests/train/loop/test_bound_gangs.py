"""What bounds real gangs: slow decoding, a slow rank, and neither."""

import json

import pytest
from tests.train.gang import ROOT
from tests.train.loop.test_prefetch import finished, plan_of
from tests.train.sets.packed import put_dataset, source_of

from gangline.line.results.bound import find_bound

pytestmark = [pytest.mark.row("DL7"), pytest.mark.long, pytest.mark.timeout(300)]


def shares_of(gang, world):
    """Of a step by phase, for each rank, without the two steps that a start slows."""
    found = []
    for rank in range(world):
        sums = {}
        for event in gang.events(rank, "step")[2:]:
            for phase, seconds in event["phases"].items():
                sums[phase] = sums.get(phase, 0.0) + seconds
        found.append({phase: seconds / sum(sums.values()) for phase, seconds in sums.items()})
    return found


@pytest.mark.parametrize(
    ("pace", "bound"),
    [({"read": 0.05}, "data"), ({"rank0": 0.2}, "imbalance"), ({"loss": 0.5}, "compute")],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_cause_of_a_slow_gang_is_named(make_gang, pace, bound):
    gang = make_gang(ROOT / "tests" / "train" / "sets")
    data = source_of(put_dataset(gang.store))
    finished(gang, plan_of(data, 2), PACE=json.dumps(pace))
    shares = shares_of(gang, 2)
    assert find_bound(shares)[0] == bound, shares
