"""What the runtime, the model and the options of a line keep from being run; refused before anything is queued."""

from collections.abc import Iterator

from gangline.errors import ConfigError
from gangline.planner.layouts.degrees import expert_obstacle
from gangline.planner.layouts.layout import Layout
from gangline.planner.layouts.pipeline import command_axis_refusal, pipeline_conflicts_of_line
from gangline.spec.config.line import Line
from gangline.spec.config.matrix_rule import (
    OVERLAP_WHILE_LIVE,
    OWNER_STATE_RULES,
    OWNER_STATE_WHILE_LIVE,
    REPEATS_UNDER_ZERO1,
    read_matrix_rule,
)
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import names, traits_of


def require_runnable(strategy: str, key: str = "train.strategy") -> None:
    """Refuse a strategy that the runtime cannot run, naming those it can."""
    if traits_of(strategy) is None:
        works = ", ".join(sorted(names()))
        raise ConfigError(f'{key}: "{strategy}" is not supported; {works} or "auto" works')


def require_task(line: Line, mesh: Mesh) -> None:
    """Refuse axes along which only the runtime's own loop can cut a model.

    Raises:
        ConfigError: `line` has a command, and `mesh` such an axis.
    """
    for axis in ("pp", "ep"):
        if line.project.command is not None and getattr(mesh, axis) > 1:
            raise ConfigError(command_axis_refusal(axis, getattr(mesh, axis)))


def require_axes(mesh: Mesh, profile: ModelProfile | None, key: str = "") -> None:
    """Refuse axes along which the model cannot be cut, whatever the degree; `key` is what asks, where that is not a
    mesh.

    Raises:
        ConfigError: With what the model lacks.
    """
    if reason := obstacle(mesh, profile):
        raise ConfigError(f"{key}: {reason}" if key else reason)


def obstacle(mesh: Mesh, profile: ModelProfile | None) -> str | None:
    """Why the model cannot be cut along some axis of `mesh`; None: it can, or that is not known."""
    obstacles = profile.obstacles if profile else {}
    return next(
        (
            obstacles[axis]
            for axis in ("pp", "dp_shard", "cp", "tp", "ep")
            if getattr(mesh, axis) > 1 and axis in obstacles
        ),
        expert_obstacle(mesh, profile),
    )


def compression_obstacle(line: Line, mesh: Mesh) -> str | None:
    """Why `train.compression` has no meaning on `mesh`; None: it has, or there is none."""
    kind = line.train.compression.kind
    if kind == "bf16" and line.train.strategy != "auto" and mesh.data_parallel * mesh.cp == 1:
        return (
            "train.compression.kind = bf16 is what ranks average gradients in, and no two ranks of this mesh do; "
            'dp_replicate, dp_shard or "none" work'
        )
    if kind in ("none", "bf16") or mesh.dp_replicate > 1:
        return None
    return (
        f"train.compression.kind = {kind} is for what replicas exchange, and there is one replica; two ranks or more, "
        '"none" or "bf16" work'
    )


def overlap_obstacle(line: Line, mesh: Mesh) -> str | None:
    """Why `optimizer.overlap` has no meaning on `mesh`, or does not go with other options; None: neither."""
    rule = read_matrix_rule(line.optimizer)
    if rule is None or not rule.overlaps:
        return None
    if line.train.recovery.mode == "live":
        return OVERLAP_WHILE_LIVE
    traits = traits_of(line.train.strategy)
    has_copies = mesh.dp_replicate > 1 or (traits is not None and traits.has_replicas)
    if has_copies and not (traits is not None and traits.averages_rarely):
        return None
    return (
        'optimizer.overlap: "forward" is for updates that owners send to copies, and no rank has such a copy here; '
        'dp_replicate, or "off" works'
    )


def copies_obstacle(line: Line, layout: Layout) -> str | None:
    """Why ranks with copies cannot do with matrices what `optimizer.copies` says; None: they can."""
    table = read_matrix_rule(line.optimizer)
    if table is None:
        return None
    if table.repeats and layout.wrapping.shares_optimizer:
        return REPEATS_UNDER_ZERO1
    if not table.repeats and table.rule in OWNER_STATE_RULES and line.train.recovery.mode == "live":
        return OWNER_STATE_WHILE_LIVE.format(rule=table.rule)
    return None


def require_options(line: Line) -> None:
    """Refuse options that the runtime does not execute, all of them together, before anything is spent.

    Raises:
        ConfigError: With a line for each.
    """
    if line.prove.plan not in ("auto", "off"):
        require_runnable(line.prove.plan, key="prove.plan")
    if refused := list(contradictions(line)):
        raise ConfigError("\n".join(refused))


def _lacks_for_live(line: Line) -> str:
    """What ranks lack to stay while another is replaced; empty: nothing."""
    train, mesh = line.train, line.train.mesh
    if line.project.task is None:
        return "a project.task: a program has a loop of its own"
    cut = (mesh.tp, mesh.pp, mesh.cp, mesh.ep)
    traits = traits_of(train.strategy)
    carries = traits.carries_live_recovery if traits else train.strategy == "explicit" and max(cut) == 1
    if not carries:
        works = " or ".join(f'"{name}"' for name in names(lambda each: each.carries_live_recovery))
        return f"train.strategy = {works}: ranks of other replicas hold what a lost one held"
    if train.compression.kind not in ("none", "bf16", "fp16"):
        return f"gradients without a memory, which {train.compression.kind} has of its own on each rank"
    return ""


def refusal_reason(line: Line, layout: Layout, profile: ModelProfile | None) -> str | None:
    """Why the runtime, the options of `line` or the model keep `layout` from being run; None: nothing does."""
    cut = layout.mesh.tp * layout.mesh.pp * layout.mesh.cp * layout.mesh.ep > 1
    kind = line.train.compression.kind
    if kind not in ("none", "bf16") and cut:
        return f"train.compression.kind = {kind} is for whole parameters, which are cut here"
    if layout.mesh.dp_replicate == 1 and line.train.recovery.stragglers == "rebalance":
        return "train.recovery.stragglers = rebalance gives replicas other shares, and there is one replica"
    return (
        compression_obstacle(line, layout.mesh)
        or overlap_obstacle(line, layout.mesh)
        or copies_obstacle(line, layout)
        or next(iter(pipeline_conflicts_of_line(line, layout.mesh)), None)
        or obstacle(layout.mesh, profile)
    )


_OFFLOAD = "train.memory.offload"


def contradictions(line: Line) -> Iterator[str]:
    """What no layout and no device carries out, by key, with what works instead."""
    memory = line.train.memory
    if line.train.recovery.mode == "live" and (missing := _lacks_for_live(line)):
        yield f"train.recovery.mode: 'live' is not supported; it needs {missing}; \"restart\" works everywhere"
    if line.project.command and memory.loss_chunks not in ("auto", 1):
        yield (
            f"train.memory.loss_chunks: wanted 1, found {memory.loss_chunks}: a command has a loss of its own, "
            "the runtime cuts that of a task"
        )
    if line.train.compile and memory.offload == "activations":
        yield f'{_OFFLOAD}: "activations" does not work with train.compile; "none" works'


def offload_obstacle(line: Line, layout: Layout, device: Device) -> str | None:
    """Why `train.memory.offload` would do nothing for `layout`; None: it does something, or nothing is asked."""
    offload = line.train.memory.offload
    if offload in ("cpu", "activations") and device == "cpu":
        works = '"none" or "optimizer_nvme" works'
        return f'{_OFFLOAD}: "{offload}" is for accelerators, here everything is in host memory; {works}'
    if offload == "cpu" and not layout.wrapping.shards:
        return f'{_OFFLOAD}: "cpu" moves shards, and {layout.name} has none; fsdp has'
    if offload == "optimizer_nvme" and device != "cpu":
        works = '"cpu" works there, with fsdp'
        return f'{_OFFLOAD}: "optimizer_nvme" is for parameters in host memory, these are on {device}; {works}'
    return None
