"""Mappings of up to 24 cells against the least bytes that an integer program proves."""

from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from gangline.fabric.placement.mapping import EdgeBytes, bytes_between, least_data_crossings
from gangline.fabric.placement.tiles import map_cells

CELLS = 24
SHAPES = [(replicas, stages) for replicas in range(2, 9) for stages in range(2, 9) if replicas * stages <= CELLS]


def ratios(cases, *, seed):
    pytest.importorskip("scipy.optimize", reason="needs scipy")
    from tests.oracles.cell_mapping import least_bytes

    random = Random(seed)
    for _ in range(cases):
        replicas, stages = random.choice(SHAPES)
        cuts = sorted(random.sample(range(1, replicas * stages), min(random.randint(1, 4), replicas * stages - 1)))
        shares = [high - low for low, high in pairwise([0, *cuts, replicas * stages])]
        edges = EdgeBytes(data=10 ** random.uniform(-1.5, 1.5), stage=1.0)
        found = map_cells(
            {str(at): size for at, size in enumerate(shares)}, replicas=replicas, stages=stages, edges=edges
        )
        least = least_bytes(shares, replicas, stages, edges, seconds=20)
        if least is not None:
            assert least_data_crossings(shares, replicas) * edges.data <= least + 1e-6
            size = bytes_between(found, edges)
            assert size >= least - 1e-6
            yield size / least if least > 1e-9 else float(size < 1e-9 or 9)


@pytest.mark.slow
def test_mappings_of_24_cells_are_near_the_least():
    found = list(ratios(60, seed=2))
    assert len(found) >= 40
    assert mean(found) <= 1.05
    assert max(found) <= 1.25
