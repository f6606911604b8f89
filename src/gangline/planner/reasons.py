"""The words of a verdict: one reason a plan, with its numbers."""

import math
from collections.abc import Sequence

from gangline.errors import ConfigError
from gangline.planner.candidates import Shape
from gangline.planner.memory import Fit, state_bytes
from gangline.planner.pool import Pool
from gangline.spec.profile import ModelProfile
from gangline.units import format_bytes, format_count, format_seconds

_ALONE = "one rank has nothing to share"


def chosen_reason(shape: Shape, fit: Fit, profile: ModelProfile | None, *, asked: bool, alone: bool) -> str:
    """Why `shape` won; `alone`: no other plan was possible. What was not known is said, too."""
    reason = "as the line asks" if asked else _why(shape, fit, profile, alone=alone)
    unknown = _unknown(fit, profile)
    return f"{reason}; {unknown}" if unknown else reason


def loser_reason(shape: Shape, winner: Shape, seconds: float | None, best: float | None) -> str:
    """Why `shape`, which fits, lost to `winner`."""
    if seconds is not None and best is not None and seconds > best:
        percent = 100 * (seconds / best - 1)
        return f"{percent:.1f} % slower: {format_seconds(seconds)} against {format_seconds(best)} a step, measured"
    if shape.num_axes > winner.num_axes:
        return f"more axes: {shape.num_axes} where {winner.num_axes} does"
    if shape.strategy == "none":
        return f"one rank of {winner.mesh.world_size}: the others stay idle"
    if shape.strategy == "fsdp":
        return "gathers parameters at each step" if winner.strategy == "ddp" else "gathers parameters across nodes"
    return f"{shape.strategy} moves no fewer bytes than {winner.name}, which was measured"


def no_fit_reason(fit: Fit) -> str:
    return (
        f"no fit: a rank needs {format_bytes(fit.need_bytes or 0)}, it may hold {format_bytes(fit.usable_bytes or 0)}"
    )


def refuse_all(pool: Pool, profile: ModelProfile | None, misses: Sequence[tuple[Shape, Fit]]) -> ConfigError:
    """Nothing fits: the two nearest misses, and the smallest pool that would do."""
    nearest = sorted(misses, key=lambda miss: miss[1].ratio or 0)[:2]
    words = [f"{shape.name} needs {fit.ratio or 0:.1f} times what a rank may hold" for shape, fit in nearest]
    state = state_bytes(profile) if profile else 0
    least = nearest[0][1].usable_bytes or 0
    works = (
        f"{math.ceil(state / least)} devices like these hold the state" if least >= 1 else "larger devices are needed"
    )
    return ConfigError(
        f"plan: wanted room for a state of {format_bytes(state)} ({format_count(profile.parameters if profile else 0)} "
        f"parameters x 16 bytes), found {pool.size} x {format_bytes(least)} usable: {'; '.join(words)}; {works}"
    )


def _why(shape: Shape, fit: Fit, profile: ModelProfile | None, *, alone: bool) -> str:
    if shape.strategy == "none":
        return _ALONE if alone else "only a single rank fits: several copies or pieces need more than is there"
    if shape.strategy == "ddp":
        return "fits every rank whole, nothing to shard" if fit.ratio is not None else "one axis, one all-reduce a step"
    whole = Fit(state_bytes(profile) if profile else None, fit.usable_bytes).ratio
    if whole is None or whole <= 1:
        return "measured faster than a copy on every rank"
    if shape.strategy == "hsdp":
        return f"needs {whole:.1f} times one device, a node holds it: shards stay inside, gradients cross"
    parts = shape.mesh.dp_shard
    return f"needs {whole:.1f} times one device, over {parts} it takes {whole / parts:.1f}"


def _unknown(fit: Fit, profile: ModelProfile | None) -> str:
    if profile is None:
        return "size of the model not known"
    if fit.usable_bytes is None:
        return "memory of the devices not known"
    return "" if profile.activation_bytes_per_sample else "activations not known yet"
