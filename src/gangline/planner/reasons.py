"""The words of a verdict: one reason a plan, with its numbers."""

from collections.abc import Sequence

from gangline.errors import ConfigError
from gangline.planner.candidates import Shape
from gangline.planner.memory import Fit, state_bytes
from gangline.planner.memory_options import Setting
from gangline.planner.pool import Pool
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory
from gangline.spec.profile import ModelProfile
from gangline.units import format_bytes, format_count

PROGRAM_DECIDES = "the program decides how"
_NOTHING = Memory()
_ALONE = "one rank has nothing to share"


def chosen_reason(
    shape: Shape,
    setting: Setting,
    profile: ModelProfile | None,
    *,
    asked: bool,
    alone: bool,
    given: Memory,
    won: str = "",
) -> str:
    """Why `shape` won; `alone`: no other plan was possible; `won`: over the first of the fixed order, with its numbers.
    What was not known is said, too, and what was given up for memory beyond `given`, which the line asks for."""
    reason = "as the line asks" if asked else won or _why(shape, setting.fit, profile, alone=alone)
    more = [given_up(setting.memory, given), _unknown(setting.fit, profile)]
    return "; ".join([reason, *(each for each in more if each)])


def given_up(memory: Memory, given: Memory = _NOTHING) -> str:
    """What `memory` gives up for room beyond `given`; empty: nothing."""
    again = {"none": "", "full": "recomputes all blocks", "selective": "recomputes what is cheap"}
    word = memory.activation_checkpointing
    words = [
        again.get(word, f"recomputes blocks ({word})") if word != given.activation_checkpointing else "",
        f"loss in {memory.loss_chunks} pieces" if memory.loss_chunks != given.loss_chunks else "",
        "shards wait on the host" if memory.offload == "cpu" != given.offload else "",
    ]
    return ", ".join(each for each in words if each)


def loser_reason(shape: Shape, winner: Shape, settings: tuple[Setting, Setting]) -> str:
    """Why `shape`, which fits, lost to `winner` where times do not tell; settings are those of both, in this order."""
    own, other = settings
    if shape.strategy == "none":
        return f"one rank of {winner.mesh.world_size}: the others stay idle"
    if own.effort > other.effort:
        return f"gives up more time for room: {given_up(own.memory, other.memory) or 'computes more again'}"
    if shape.num_axes > winner.num_axes:
        return f"{shape.num_axes} axes where {winner.num_axes} does"
    return _more_traffic(shape.mesh, winner.mesh) or _of_copies(shape, winner)


def _more_traffic(mesh: Mesh, least: Mesh) -> str:
    if mesh.tp > least.tp:
        return f"{mesh.tp} peers exchange in every block where {least.tp} do"
    if mesh.cp > least.cp:
        return f"{mesh.cp} peers hand keys and values around in every block"
    if mesh.ep > least.ep:
        return "rows go to experts of other ranks and back in every block"
    if mesh.pp > least.pp:
        return f"{mesh.pp} stages wait for each other where {least.pp} do"
    if mesh.world_size < least.world_size:
        return f"{mesh.world_size} ranks where {least.world_size} work"
    return ""


def _of_copies(shape: Shape, winner: Shape) -> str:
    if shape.strategy == "zero1":
        return "averages gradients and deals out new parameters besides"
    if shape.strategy == "zero2" and winner.strategy != "ddp":
        return "holds parameters whole from forward to backward"
    if shape.strategy in ("fsdp", "zero2"):
        return "gathers parameters at each step" if winner.strategy == "ddp" else "gathers parameters across nodes"
    return f"{shape.strategy} is no simpler than {winner.name}"


def no_fit_reason(fit: Fit) -> str:
    need, has = format_bytes(fit.need_bytes or 0), format_bytes(fit.usable_bytes or 0)
    return f"no fit: a rank needs {need} ({fit.cause}), it may hold {has}"


def refuse_all(
    pool: Pool, profile: ModelProfile | None, misses: Sequence[tuple[Shape, Fit]], change: str
) -> ConfigError:
    """Nothing fits: the two nearest misses, and the smallest `change` that would do; empty: none was found."""
    nearest = sorted(misses, key=lambda miss: miss[1].ratio or 0)[:2]
    words = [
        f"{shape.name} needs {fit.ratio or 0:.1f} times what a rank may hold ({fit.cause})" for shape, fit in nearest
    ]
    state = state_bytes(profile) if profile else 0
    least = nearest[0][1].usable_bytes or 0
    return ConfigError(
        f"plan: wanted room for a state of {format_bytes(state)} ({format_count(profile.parameters if profile else 0)} "
        f"parameters x 16 bytes), found {pool.size} x {format_bytes(least)} usable: {'; '.join(words)}; "
        f"{change or 'larger devices are needed'}"
    )


def _why(shape: Shape, fit: Fit, profile: ModelProfile | None, *, alone: bool) -> str:
    if shape.strategy == "none":
        return _ALONE if alone else "only a single rank fits: several copies or pieces need more than is there"
    if shape.strategy == "ddp":
        return "fits every rank whole, nothing to shard" if fit.ratio is not None else "one axis, one all-reduce a step"
    if shape.mesh.tp * shape.mesh.pp * shape.mesh.cp > 1:
        return "sharing data alone does not fit: " + _cuts(shape.mesh)
    whole = Fit(state_bytes(profile) if profile else None, fit.usable_bytes).ratio
    return "gives up less time for room than copies" if whole is None or whole <= 1 else _of_shards(shape, whole)


def _of_shards(shape: Shape, whole: float) -> str:
    """Why the state, which fills `whole` devices, is shared so."""
    if shape.strategy == "hsdp":
        return f"needs {whole:.1f} times one device, a node holds it: shards stay inside, gradients cross"
    if shape.strategy == "zero1":
        return f"needs {whole:.1f} times one device, and without the others' moments it fits"
    parts = shape.mesh.dp_shard
    return f"needs {whole:.1f} times one device, over {parts} it takes {whole / parts:.1f}"


def _cuts(mesh: Mesh) -> str:
    words = [
        f"{mesh.tp} peers share each layer" if mesh.tp > 1 else "",
        f"{mesh.cp} peers share each sequence" if mesh.cp > 1 else "",
        f"{mesh.pp} stages share the blocks" if mesh.pp > 1 else "",
        f"{mesh.dp_shard} shards the rest" if mesh.dp_shard > 1 else "",
    ]
    return ", ".join(each for each in words if each)


def _unknown(fit: Fit, profile: ModelProfile | None) -> str:
    if profile is None:
        return "size of the model not known"
    if fit.usable_bytes is None:
        return "memory of the devices not known"
    if profile.untraced:
        return "activations not known"  # the forecast says why
    return "" if profile.traces or profile.activation_bytes_per_sample else "activations not known yet"
