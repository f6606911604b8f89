"""Samples of a step by replica, where replicas run on unlike devices: the rule that they keep, and their words. Pure.

The loss of a step is a weighted sum, so shares change neither loss nor weights, except by rounding.
"""

from collections.abc import Sequence
from itertools import groupby

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh


def require_shares(shares: Sequence[int], mesh: Mesh, *, global_batch: int, averages_rarely: bool) -> None:
    """Refuse shares that the ranks of `mesh` cannot take; none at all are equal ones.

    Raises:
        ConfigError: They are not those of a step, a shard of a replica would get no sample, or replicas of this kind
            take equal shares only.
    """
    if not shares:
        return
    if rule := _broken(shares, mesh, global_batch, averages_rarely=averages_rarely):
        raise ConfigError(f"plan.shares: wanted {rule}, found {shares_words(shares)}; no shares are equal ones")


def _broken(shares: Sequence[int], mesh: Mesh, global_batch: int, *, averages_rarely: bool) -> str:
    """What is wanted instead; empty: nothing."""
    rules = (
        (mesh.dp_replicate == 1, "no shares, as there is one replica"),
        (averages_rarely, "no shares, as local_sgd and diloco average replicas with equal weights"),
        (mesh.pp > 1, "no shares, as the schedule of a pipeline has a fixed number of micro-batches"),
        (len(shares) != mesh.dp_replicate, f"{mesh.dp_replicate} shares, one for each replica"),
        (sum(shares) != global_batch, f"shares that add up to global_batch = {global_batch}"),
        (min(shares) < mesh.dp_shard, f"at least {mesh.dp_shard} samples for each replica, one for each of its shards"),
    )
    return next((words for is_broken, words in rules if is_broken), "")


def shares_words(shares: Sequence[int]) -> str:
    """`8 x 48, 8 x 16`: neighbours with equal shares together."""
    runs = [(len(list(same)), size) for size, same in groupby(shares)]
    return ", ".join(f"{count} x {size}" if count > 1 else f"{size}" for count, size in runs)
