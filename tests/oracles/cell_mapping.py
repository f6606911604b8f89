"""Least bytes of a mapping of stages and replicas to groups, as an integer program; needs scipy."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from gangline.fabric.placement.mapping import EdgeBytes


def least_bytes(
    shares: Sequence[int], replicas: int, stages: int, edges: EdgeBytes, *, seconds: float = 60.0
) -> float | None:
    """Groups that each stage touches, none if it is one, and edges between stages; None: no proof within `seconds`.

    Variables, in this order: cell (stage, replica) in group; stage touches group; stage is in one group; edge crosses.
    """
    groups, cells = range(len(shares)), list(product(range(stages), range(replicas)))
    cell = {(s, d, g): at for at, ((s, d), g) in enumerate(product(cells, groups))}
    touches = {key: len(cell) + at for at, key in enumerate(product(range(stages), groups))}
    whole = {s: len(cell) + len(touches) + s for s in range(stages)}
    crosses = {key: len(cell) + len(touches) + stages + at for at, key in enumerate(cells[: len(cells) - replicas])}
    count = len(cell) + len(touches) + stages + len(crosses)

    rows: list[tuple[dict[int, float], float, float]] = []
    rows += [({cell[s, d, g]: 1.0 for g in groups}, 1, 1) for s, d in cells]
    rows += [({cell[s, d, g]: 1.0 for s, d in cells}, shares[g], shares[g]) for g in groups]
    rows += [({touches[s, g]: 1.0, cell[s, d, g]: -1.0}, 0, np.inf) for s, d in cells for g in groups]
    rows += [
        ({**{touches[s, g]: 1.0 for g in groups}, whole[s]: len(shares) - 1}, -np.inf, len(shares))
        for s in range(stages)
    ]
    rows += [
        ({crosses[s, d]: 1.0, cell[s, d, g]: -1.0, cell[s + 1, d, g]: 1.0}, 0, np.inf)
        for s, d in crosses
        for g in groups
    ]
    matrix = lil_matrix((len(rows), count))
    for at, (row, _, _) in enumerate(rows):
        for column, value in row.items():
            matrix[at, column] = value
    cost = np.zeros(count)
    cost[list(touches.values())], cost[list(whole.values())] = edges.data, -edges.data
    cost[list(crosses.values())] = edges.stage
    limits = LinearConstraint(matrix.tocsr(), [low for _, low, _ in rows], [high for _, _, high in rows])
    integral = np.ones(count)
    integral[list(crosses.values())] = 0
    found = milp(cost, constraints=limits, integrality=integral, bounds=Bounds(0, 1), options={"time_limit": seconds})
    return float(found.fun) if found.status == 0 else None
