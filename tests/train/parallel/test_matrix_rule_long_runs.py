"""200 steps of a small language model under a matrix rule, in gangs, inside the band of three seeds of one process."""

from statistics import mean, stdev

import pytest
from tests.train.parallel.test_matrix_rule import RULES, gang_in, plan_of
from tests.train.trained import trained

from gangline.spec.mesh import Mesh

STEPS, LAST = 200, 20
FACTOR = 4.303 * (1 + 1 / 3) ** 0.5
"""Of the standard deviation of three runs: 95 of 100 further ones are within (Student's t of two degrees)."""


def final_loss(folder, warm, strategy="none", mesh=None, *, rule, seed, **options):
    """Mean of the last losses, which single batches change less than seeds do."""
    folder.mkdir()
    gang, data = gang_in(folder, warm)
    plan = plan_of(strategy, mesh or Mesh(), data, optimizer=RULES[rule] | options, seed=seed, steps=STEPS)
    return mean(trained(gang, plan)[1][-LAST:])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rule", RULES)
def test_gangs_end_inside_the_band_of_one_process(warm, tmp_path, rule):
    alone = [final_loss(tmp_path / f"{seed}", warm, rule=rule, seed=seed) for seed in (1, 2, 3)]
    middle, half = mean(alone), FACTOR * stdev(alone)
    gangs = {
        "zero1": Mesh(dp_replicate=2),
        "fsdp": Mesh(dp_shard=2),
        "tp": Mesh(tp=2),
        "hsdp": Mesh(dp_replicate=2, dp_shard=2),
    }
    for strategy, mesh in gangs.items():
        found = final_loss(tmp_path / strategy, warm, strategy, mesh, rule=rule, seed=4)
        assert abs(found - middle) <= half, (strategy, found, alone)
    slower = final_loss(tmp_path / "slower", warm, rule=rule, seed=1, lr=RULES[rule].get("lr", 1e-3) / 10)
    assert slower > middle + half, f"the band {middle} +- {half} would let a tenth of the rate pass: {slower}"
