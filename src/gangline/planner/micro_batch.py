"""Samples of one forward pass."""

from collections.abc import Callable

from gangline.errors import ConfigError
from gangline.planner.world import nearest_divisors
from gangline.spec.line import Line
from gangline.spec.mesh import Mesh

MOST_AUTO = 16
"""A rank's whole share up to here; beyond it, smaller passes accumulate."""


def choose_micro_batch(line: Line, mesh: Mesh, fits: Callable[[int], bool]) -> int:
    """What the line says, else the largest divisor of a rank's share that fits, at most `MOST_AUTO`.

    Raises:
        ConfigError: The line's own number does not divide the share; the two nearest that do are named.
    """
    share = line.train.global_batch // mesh.data_parallel
    asked = line.train.mesh.micro_batch
    divisors = [size for size in range(1, min(share, MOST_AUTO) + 1) if share % size == 0]
    if asked == "auto":
        return max((size for size in divisors if fits(size)), default=1)
    if share % asked:
        near = " or ".join(str(size) for size in nearest_divisors(share, asked))
        raise ConfigError(
            f"train.mesh.micro_batch: wanted a divisor of a rank's share of {share}, found {asked}; {near} works"
        )
    return asked
