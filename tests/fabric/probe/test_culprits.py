"""Known culprits against what is diagnosed: the matrix is reviewed, and changes only with the detectors."""

from collections import Counter

import pytest
from tests.fabric.probe.culprits import CULPRITS

SEEDS = 10
MATRIX = """
none                nothing 10
garbage collection  nothing 10
slow_rank           slow_rank 10
stage_imbalance     stage_imbalance 10
slow_sender         slow_sender 10
slow_receiver       slow_receiver 10
slow_path           slow_path 10
slow_leaf           slow_leaf 10
lossy_link          lossy_link 10
sick_host           sick_host 10
"""
NAMES = {
    "slow_rank": {"rank 5"}, "stage_imbalance": {"stage 0"}, "slow_sender": {"s3"}, "slow_receiver": {"s9"},
    "slow_path": {"s1", "s9"}, "slow_leaf": {"g1"}, "lossy_link": {"host s6", "link s6"}, "sick_host": {"s6"},
}  # fmt: skip
REVIEWED = dict(line.split("  ", 1) for line in MATRIX.strip().splitlines())


def test_every_culprit_has_its_row():
    assert {*REVIEWED} == {*CULPRITS}


@pytest.mark.parametrize("culprit", CULPRITS)
def test_known_culprit_is_diagnosed(culprit):
    found = [list(CULPRITS[culprit](seed)) for seed in range(SEEDS)]
    counts = Counter(" and ".join(sorted(each.kind for each in one)) or "nothing" for one in found)
    assert ", ".join(f"{kinds} {count}" for kinds, count in sorted(counts.items())) == REVIEWED[culprit].strip()
    for one in found:
        for each in one:
            assert set(each.names) == NAMES[culprit]
            assert each.evidence
            assert each.action.kind in {"quarantine", "replace", "new_shares", "new_plan"}


def test_cost_is_what_the_gang_loses():
    (slow,) = CULPRITS["slow_rank"](1)
    assert slow.cost_percent == pytest.approx(100 * 0.1 / 1.15, abs=1.5)
    assert slow.action.kind == "quarantine"
    (uneven,) = CULPRITS["stage_imbalance"](1)
    assert uneven.cost_percent == pytest.approx(100 * 0.2 / 1.45, abs=2)
    assert uneven.action.kind == "new_plan"
