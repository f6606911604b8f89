"""Samples of one forward pass."""

from gangline.errors import ConfigError
from gangline.planner.pipeline import FILL
from gangline.planner.world import nearest_divisors
from gangline.spec.line import Line
from gangline.spec.mesh import Mesh

MOST_AUTO = 16
"""A rank's whole share up to here; beyond it, smaller passes accumulate."""


def micro_batches(line: Line, mesh: Mesh) -> list[int]:
    """What the line says, else the divisors of a rank's share, largest first, at most `MOST_AUTO` and such that a
    pipeline is filled.

    Raises:
        ConfigError: The line's own number does not divide the share; the two nearest that do are named.
    """
    share = line.train.global_batch // mesh.data_parallel
    asked = line.train.mesh.micro_batch
    if asked == "auto":
        most = min(max(1, share // (FILL * mesh.pp)) if mesh.pp > 1 else share, MOST_AUTO)
        return [size for size in range(most, 0, -1) if share % size == 0] or [1]
    if share % asked:
        near = " or ".join(str(size) for size in nearest_divisors(share, asked))
        raise ConfigError(
            f"train.mesh.micro_batch: wanted a divisor of a rank's share of {share}, found {asked}; {near} works"
        )
    return [asked]
