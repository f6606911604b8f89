"""World sizes and micro-batches that the devices, the line and the global batch allow."""

import math

from gangline.errors import ConfigError
from gangline.planner.axes.pipeline import FILLING_PER_STAGE
from gangline.planner.shapes.device_pool import Pool
from gangline.spec.config.line import Line
from gangline.spec.config.problems import nearest_multiples
from gangline.spec.mesh import Mesh

MOST_RANKS_PER_CORE = 16
"""Ranks may share cores, slowly; beyond this a number was mistyped."""


def choose_world(line: Line, pool: Pool) -> int:
    """Ranks of a data-parallel gang: as many as are there and share the batch evenly.

    Raises:
        ConfigError: The line asks for ranks that are not there, or that do not divide the batch.
    """
    ranks = line.train.ranks if line.project.distributed else 1
    if isinstance(ranks, int):
        check_world(line, pool, ranks)
        return ranks
    low, high = (1, pool.num_nodes * pool.preferred) if ranks == "auto" else ranks
    return _largest(line, pool, low, high)


def check_world(line: Line, pool: Pool, world: int, *, shares: int | None = None, key: str = "train.ranks") -> None:
    """Refuse a world size that is not there, splits a node, or does not divide the batch into `shares`."""
    if pool.device == "cuda" and world > pool.size:
        works = f"{pool.size} works, or a larger pool"
        raise ConfigError(f"{key}: wanted {world} GPUs, found {pool.size} on {pool.num_nodes} nodes; {works}")
    if pool.device == "cpu":
        _require_cores(pool, world, key)
    if not is_whole(pool, world):
        per_node = _packing(pool)
        below = world // per_node * per_node
        works = f"{below} or {below + per_node} works" if below + per_node <= pool.size else f"{below} works"
        raise ConfigError(f"{key}: wanted whole nodes of {per_node} ranks, found {world} ranks; {works}")
    shares = world if shares is None else shares
    if line.train.global_batch % shares:
        raise ConfigError(_uneven(line, shares, key))


def is_whole(pool: Pool, world: int) -> bool:
    """Does every node that takes part give the same number of ranks?"""
    return world <= _packing(pool) or world % num_nodes(pool, world) == 0


def num_nodes(pool: Pool, world: int) -> int:
    """Fewest nodes that hold `world` ranks; CPU ranks may share a core when no node is left."""
    return min(pool.num_nodes, -(-world // _packing(pool)))


def ranks_per_node(pool: Pool, world: int) -> int:
    """Ranks of the fullest node."""
    return -(-world // num_nodes(pool, world))


def _packing(pool: Pool) -> int:
    """Ranks that fill a node."""
    return pool.slots if pool.device == "cuda" else pool.preferred


def micro_unit(line: Line) -> int:
    """Samples that one rank takes at once because the line says so, else 1."""
    micro_batch = line.train.mesh.micro_batch
    return micro_batch if isinstance(micro_batch, int) else 1


def _largest(line: Line, pool: Pool, low: int, high: int) -> int:
    most = min(high, pool.size) if pool.size >= low else _shared_cores(pool, low)
    for world in range(most, low - 1, -1):
        if line.train.global_batch % (world * micro_unit(line)) == 0 and is_whole(pool, world):
            return world
    wanted = f"from {low} to {most} ranks" if most > low else f"{low} ranks"
    raise ConfigError(
        f"train.global_batch: wanted a batch that {wanted} share evenly in micro-batches of {micro_unit(line)}, "
        f"found {line.train.global_batch}; {nearest_multiples(line.train.global_batch, low * micro_unit(line))} works"
    )


def _shared_cores(pool: Pool, low: int) -> int:
    if pool.device == "cuda":
        raise ConfigError(f"train.ranks: wanted at least {low} GPUs, found {pool.size}; [1, {pool.size}] works")
    _require_cores(pool, low, "train.ranks")
    return low


def _require_cores(pool: Pool, world: int, key: str) -> None:
    if world > (most := MOST_RANKS_PER_CORE * pool.size):
        raise ConfigError(f"{key}: wanted at most {MOST_RANKS_PER_CORE} ranks a core, found {world}; {most} works")


def _uneven(line: Line, shares: int, key: str) -> str:
    batch = line.train.global_batch
    near = " or ".join(str(each) for each in _nearest_divisors(batch, shares))
    return (
        f"{key}: wanted {shares} equal shares of global_batch = {batch}, found a remainder of {batch % shares}; "
        f"ranks {near} or global_batch {nearest_multiples(batch, shares)} works"
    )


def _nearest_divisors(total: int, wanted: int) -> list[int]:
    """Largest divisor of `total` up to `wanted`, and the smallest above where there is one."""
    small = [each for each in range(1, math.isqrt(total) + 1) if total % each == 0]
    divisors = sorted({*small, *(total // each for each in small)})
    below = max(each for each in divisors if each <= max(wanted, 1))
    return [below, *[each for each in divisors if each > wanted][:1]]


MOST_AUTO = 16
"""A rank's whole share up to here; beyond it, smaller passes accumulate."""


def micro_batches(line: Line, mesh: Mesh) -> list[int]:
    """What the line says, else the divisors of a rank's share, largest first, at most `MOST_AUTO` and such that a
    pipeline is filled.

    Raises:
        ConfigError: The line's own number does not divide the share; the two nearest that do are named.
    """
    share = line.train.global_batch // mesh.data_parallel
    requested = line.train.mesh.micro_batch
    if requested == "auto":
        most = min(max(1, share // (FILLING_PER_STAGE * mesh.pp)) if mesh.pp > 1 else share, MOST_AUTO)
        return [size for size in range(most, 0, -1) if share % size == 0] or [1]
    if share % requested:
        near = " or ".join(str(size) for size in _nearest_divisors(share, requested))
        raise ConfigError(
            f"train.mesh.micro_batch: wanted a divisor of a rank's share of {share}, found {requested}; {near} works"
        )
    return [requested]
