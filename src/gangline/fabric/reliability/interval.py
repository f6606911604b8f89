"""Checkpoint interval that loses the least time, and the share of time that is left for training. Pure.

Source:
    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), for the
    expected time of a run under interruptions at random; its derivative is zero at the interval that is used here.
"""

from dataclasses import replace
from math import exp, expm1, inf, sqrt

from gangline.errors import ConfigError
from gangline.spec.plan import SaveCosts

RETUNE_SHARE = 0.20
"""Share by which the mean time between interruptions must move before the interval follows it."""
_MOST_EXPONENT = 700.0
"""Exponent above which the expected time of one interval is no finite number."""


def best_interval(write_seconds: float, mean_between_seconds: float) -> float:
    """Seconds of training between two saves: tau = M (1 + W0(-exp(-1 - d/M))), exact for every d and M.

    Args:
        write_seconds: For which one save stops the training; 0: saves are free, and so is saving always.
        mean_between_seconds: Between interruptions of the whole gang; infinite: none, and one save is enough.

    Raises:
        ConfigError: A time is negative, or the time between interruptions is 0.
    """
    if not (write_seconds >= 0 and mean_between_seconds > 0):
        raise ConfigError(
            f"an interval wants a write of 0 s or more and a time between interruptions above 0 s, "
            f"found {write_seconds:g} s and {mean_between_seconds:g} s"
        )
    if mean_between_seconds == inf:
        return inf
    return mean_between_seconds * _share_of_mean(write_seconds / mean_between_seconds) if write_seconds else 0.0


def _share_of_mean(write: float) -> float:
    """The root y = 1 + W0(-exp(-1 - write)) of y + expm1(-(y + write)): convex, so Newton's steps end monotonically."""
    share = min(1.0, sqrt(2 * write))
    for _ in range(60):
        step = (share + expm1(-(share + write))) / -expm1(-(share + write))
        share -= step
        if abs(step) <= 1e-15 * share:
            break
    return share


def steps_between_saves(costs: SaveCosts, *, most: int) -> int:
    """Whole steps, from 1 to `most`: those nearest to the interval that loses the least time."""
    seconds = best_interval(costs.blocking_seconds, costs.seconds_between_failures)
    return max(1, min(round(seconds / costs.step_seconds), most))


def retuned_steps(costs: SaveCosts, *, planned: int, most: int, interruptions: int, elapsed_seconds: float) -> int:
    """Steps between saves of a gang that knows its own interruptions: `planned`, until their mean time moved by 20 %.

    The mean that `planned` was chosen by counts as the time to one interruption, so that a first one alone says little.

    Args:
        costs: By which `planned` was chosen.
        most: Steps of the training.
        interruptions: Of the gang within `elapsed_seconds`.
    """
    expected = costs.seconds_between_failures
    mean = (expected + elapsed_seconds) / (1 + interruptions)
    if abs(mean - expected) < RETUNE_SHARE * expected:
        return planned
    return steps_between_saves(replace(costs, seconds_between_failures=mean), most=most)


def effective_share(
    interval_seconds: float, write_seconds: float, restart_seconds: float, mean_between_seconds: float
) -> float:
    """Share of the time, in [0, 1), that becomes steps which are not lost.

    Args:
        interval_seconds: Of training between two saves.
        restart_seconds: From an interruption to the next step, without what is computed again.
    """
    if mean_between_seconds == inf:
        return 1.0 if interval_seconds == inf else interval_seconds / (interval_seconds + write_seconds)
    exponent = (interval_seconds + write_seconds) / mean_between_seconds
    if exponent > _MOST_EXPONENT:
        return 0.0
    restart = exp(-restart_seconds / mean_between_seconds)
    return restart * interval_seconds / (mean_between_seconds * expm1(exponent)) if exponent else restart


def write_seconds(size_bytes: float, *, servers: int, server_bytes_per_second: float) -> float:
    """Duration of a checkpoint that all servers write at once, each its own share."""
    return size_bytes / (servers * server_bytes_per_second)
