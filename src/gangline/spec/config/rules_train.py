"""Rules of the table `train` of a line: numbers, names, batch sizes, and the options that each strategy supports."""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from math import prod

from gangline.spec.compression import Compression
from gangline.spec.config import grammar
from gangline.spec.config.line import Line, MeshTable, TrainTable
from gangline.spec.config.problems import ConfigProblem, nearest_multiples, one_of, show
from gangline.spec.config.secrets import is_reference, parse_reference, references_of
from gangline.spec.mesh import Axis, Mesh
from gangline.spec.plan import SCHEDULES, Schedule, StartCheckpoint
from gangline.spec.strategies import MODEL_AXES, ONE_RANK, WORKERS, StrategyTraits, names, traits_of

RESERVED = frozenset(
    {
        "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "PYTHONHASHSEED", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    }
)  # fmt: skip
OPEN_TO_LINES = ("GANGLINE_WATCHDOG_", "GANGLINE_START_METHOD")
"""The only names of ours that a line may set: how long its first step takes, whether its imports bear a fork."""


def train_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    """Problems of `[train]`."""
    if table.stop_at is not None and not 1 <= table.stop_at <= table.steps:
        works = "leave it out: training ends at train.steps"
        yield ConfigProblem("train.stop_at", f"a step from 1 to {table.steps}", show(table.stop_at), works)
    yield from _strategy_rules(table)
    yield from _batch_rules(table)
    yield from _environment_rules(table.env)
    if not re.fullmatch(r"auto|none|selective|full|every_[1-9]\d{0,3}", table.memory.activation_checkpointing):
        wanted, found = one_of(["auto", "none", "selective", "full", "every_N"]), table.memory.activation_checkpointing
        yield ConfigProblem("train.memory.activation_checkpointing", wanted, show(found))
    yield from _schedule_rules(table)
    yield from _mesh_rules(table.mesh, table)
    yield from _compression_rules(table)
    yield from _recovery_rules(table)
    yield from _parameter_server_rules(table)


def _strategy_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    works = ("auto", "explicit", *names(aliases=True))
    if table.strategy not in works:
        yield ConfigProblem("train.strategy", one_of(works), show(table.strategy), '"auto" lets the planner choose')
    if isinstance(table.ranks, tuple):
        low, high = table.ranks
        if not 1 <= low <= high:
            yield ConfigProblem(
                "train.ranks", "[min, max] with 1 <= min <= max", f"[{low}, {high}]", "[2, 8] is elastic"
            )
    least = table.ranks[0] if isinstance(table.ranks, tuple) else table.ranks
    if traits_of(table.strategy) is ONE_RANK and isinstance(least, int) and least > 1:
        yield ConfigProblem(
            "train.ranks", 'one rank with strategy = "none"', show(table.ranks), '"ddp" shares the batch'
        )


def _batch_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    """Every data-parallel rank gets the same number of whole micro-batches."""
    traits = traits_of(table.strategy)
    shares_over_all = table.strategy == "auto" or (traits is not None and traits.shares_batch_over_all)
    if table.strategy == "explicit":
        shares, name = table.mesh.dp_replicate * table.mesh.dp_shard, "dp_replicate x dp_shard"
    elif shares_over_all and isinstance(table.ranks, int):
        shares, name = table.ranks, "train.ranks"
    else:
        shares, name = 1, "one rank"
    micro = table.mesh.micro_batch if isinstance(table.mesh.micro_batch, int) else 1
    unit = shares * micro
    if unit < 1 or table.global_batch < 1 or table.global_batch % unit == 0:
        return
    name = f"{name} = {shares}" + (f" x micro_batch = {micro}" if micro > 1 else "")
    works = f"{nearest_multiples(table.global_batch, unit)} works"
    yield ConfigProblem("train.global_batch", f"a multiple of {name}", show(table.global_batch), works)


def _environment_rules(env: dict[str, str]) -> Iterator[ConfigProblem]:
    for name, value in env.items():
        key = f"train.env.{name[:60]}"
        ours = name.startswith("GANGLINE_") and not name.startswith(OPEN_TO_LINES)
        if not grammar.VARIABLE.fullmatch(name):
            yield ConfigProblem(key, "the name of a variable", show(name), "letters, digits and _")
        elif name in RESERVED or ours:
            yield ConfigProblem(key, "a name of your own", "one that the gang sets", "choose another")
        if "\0" in value:
            yield ConfigProblem(key, "text", "a NUL character")
        elif name in references_of(env):
            yield from _secret_rules(key, value)


def _secret_rules(key: str, value: str) -> Iterator[ConfigProblem]:
    works = "write secret:env:NAME or secret:file:/PATH"
    if not is_reference(value):
        yield ConfigProblem(key, "a reference to a secret", "another text that begins so", works)
        return
    reference = parse_reference(value)
    if reference.kind == "k8s":
        found = "one that only pods of the cluster may read, where pods mount no Secret but that of their own gang"
        yield ConfigProblem(key, "a secret that the driver reads", found, works)
    if reference.kind == "file" and (not reference.name.startswith("/") or ".." in reference.name.split("/")):
        yield ConfigProblem(key, "an absolute path without ..", show(reference.name), works)


def _schedule_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    schedule = table.schedule
    if schedule.kind not in SCHEDULES and not grammar.TASK.fullmatch(schedule.kind):
        yield ConfigProblem("train.schedule.kind", f'{one_of(SCHEDULES)} or "module:function"', show(schedule.kind))
    if schedule.function is not None:
        works = f"leave it out: {schedule.function} decides alone"
        for key in ("warmup_steps", "final_ratio"):
            if (found := getattr(schedule, key)) != getattr(Schedule(), key):
                yield ConfigProblem(f"train.schedule.{key}", "no other key with a function", show(found), works)
    if schedule.warmup_steps > table.steps >= 1:
        wanted = f"at most train.steps = {table.steps}"
        yield ConfigProblem("train.schedule.warmup_steps", wanted, show(schedule.warmup_steps), "warm up for fewer")


_AXES = tuple(field.name for field in fields(Mesh))


def _mesh_rules(mesh: MeshTable, table: TrainTable) -> Iterator[ConfigProblem]:
    degrees = {axis: getattr(mesh, axis) for axis in _AXES}
    for axis, degree in degrees.items():
        if degree != 1 and table.strategy != "explicit":
            works = 'strategy = "explicit" takes degrees'
            yield ConfigProblem(
                f"train.mesh.{axis}", f"no degree with strategy = {show(table.strategy)}", show(degree), works
            )
    if table.strategy == "explicit" and min(degrees.values()) >= 1:
        yield from _degree_rules(degrees, table.ranks)
    yield from _idle_rules(mesh, table)


def _idle_rules(mesh: MeshTable, table: TrainTable) -> Iterator[ConfigProblem]:
    """Options that would say nothing about the strategy of the line."""
    if mesh.pp_schedule != "auto" and not _uses(table, "pp"):
        works = 'leave it out; "pp", "3d" and an explicit pp have a schedule'
        yield ConfigProblem("train.mesh.pp_schedule", "none without stages", show(mesh.pp_schedule), works)
    if mesh.context != "ring" and not _uses(table, "cp"):
        works = 'leave it out; "cp" and an explicit cp cut sequences'
        yield ConfigProblem("train.mesh.context", "none without cut sequences", show(mesh.context), works)
    if mesh.bucket_bytes != "auto" and not _has_buckets(table):
        *most, last = (f'"{name}"' for name in names(lambda each: each.has_buckets))
        works = f"leave it out; {', '.join(most)} and {last} have buckets"
        yield ConfigProblem(
            "train.mesh.bucket_bytes", "none where blocks are averaged one by one", show(mesh.bucket_bytes), works
        )


def _has_buckets(table: TrainTable) -> bool:
    mesh = table.mesh
    if table.strategy == "explicit":
        return mesh.dp_replicate > 1 and max(mesh.pp, mesh.dp_shard, mesh.cp, mesh.tp) == 1
    return table.strategy == "auto" or _is(table, lambda traits: traits.has_buckets)


def _degree_rules(degrees: dict[str, int], ranks: object) -> Iterator[ConfigProblem]:
    world = prod(degree for axis, degree in degrees.items() if axis != "ep")
    works = f'{world} or "auto" works' if world > 1 else f"train.mesh.dp_shard = {ranks} shards over them all"
    if isinstance(ranks, int) and ranks != world:
        yield ConfigProblem("train.ranks", f"the product of the degrees, {world}", show(ranks), works)
    if isinstance(ranks, tuple) and not ranks[0] <= world <= ranks[1]:
        wanted = f"a range around the product of the degrees, {world}"
        yield ConfigProblem("train.ranks", wanted, show(list(ranks)), f'{world} or "auto" works')
    if (degrees["dp_shard"] * degrees["cp"]) % degrees["ep"]:
        yield ConfigProblem("train.mesh.ep", "a divisor of dp_shard x cp", show(degrees["ep"]))


def _compression_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    compression = table.compression
    if compression.kind not in ("none", "bf16") and not _has_replicas(table):
        wanted = f"an axis dp_replicate for {compression.kind}"
        works = 'bf16 works wherever ranks average; "ddp" and "hsdp" have replicas'
        yield ConfigProblem("train.compression.kind", wanted, f"strategy = {show(table.strategy)}", works)
    elif compression.kind not in ("none", "bf16") and any(_uses(table, axis) for axis in MODEL_AXES):
        works = "bf16 works wherever ranks average; without tp, cp, pp and ep every kind does"
        yield ConfigProblem(
            "train.compression.kind", "none or bf16 where the model is cut", show(compression.kind), works
        )
    elif compression.kind not in ("none", "bf16") and table.memory.gradient_sync == "each":
        works = '"last" works: what is compressed is the gradient of a whole step'
        yield ConfigProblem("train.memory.gradient_sync", "last with compression", show("each"), works)
    yield from _outer_rules(table, compression)


_OUTER = {
    "outer_steps": "16 lets replicas meet every 16 steps",
    "outer_lr": "0.7 is usual, 1.0 takes the mean of the replicas",
}


def _outer_rules(table: TrainTable, compression: Compression) -> Iterator[ConfigProblem]:
    strategy, traits = table.strategy, traits_of(table.strategy)
    needed = traits.needs if traits else ()
    for name in needed:
        if getattr(compression, name) is None:
            yield ConfigProblem(f"train.compression.{name}", f"a value for {show(strategy)}", "nothing", _OUTER[name])
    for name in ("outer_steps", "outer_lr"):
        value = getattr(compression, name)
        if value is not None and name not in needed:
            works = 'leave it out; strategy = "diloco" has outer steps and a rate for them'
            yield ConfigProblem(
                f"train.compression.{name}", f"none with strategy = {show(strategy)}", show(value), works
            )
    if compression.kind != "none" and _is(table, lambda it: it.averages_rarely and not it.carries_compression):
        works = 'strategy = "diloco" with outer_lr = 1.0 and outer_momentum = 0.0 is the same, compressed'
        yield ConfigProblem(
            "train.compression.kind", f"none with strategy = {show(strategy)}", show(compression.kind), works
        )


def _recovery_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    if table.recovery.mode == "live" and not _has_replicas(table):
        found = f"strategy = {show(table.strategy)}"
        yield ConfigProblem(
            "train.recovery.mode", 'an axis dp_replicate for "live"', found, '"restart" works everywhere'
        )
    if table.recovery.stragglers == "rebalance" and (reason := _never_dealt(table)):
        works = '"name" works everywhere, "evict" with train.ranks = [least, most]'
        yield ConfigProblem("train.recovery.stragglers", reason, '"rebalance"', works)
    if table.recovery.stragglers == "evict" and not isinstance(table.ranks, tuple):
        wanted = "train.ranks = [least, most], so that plans for fewer nodes are ready"
        yield ConfigProblem("train.recovery.stragglers", wanted, '"evict"', '"name" works everywhere')


def _never_dealt(table: TrainTable) -> str:
    """What replicas lack to take unequal shares of a batch; empty: nothing."""
    if not _has_replicas(table):
        return "an axis dp_replicate, whose replicas share the work unevenly"
    if _uses(table, "pp"):
        return "no pipeline, for its stages take equal numbers of micro-batches"
    return "replicas that average every step" if _is(table, lambda traits: traits.averages_rarely) else ""


def _has_replicas(table: TrainTable) -> bool:
    if table.strategy == "explicit":
        return table.mesh.dp_replicate > 1
    return traits_of(table.strategy) is None or _is(table, lambda traits: traits.has_replicas)


def _uses(table: TrainTable, axis: Axis) -> bool:
    """The degree of `axis` is above 1, or may be under a strategy that chooses it."""
    if table.strategy == "explicit":
        return bool(getattr(table.mesh, axis) > 1)
    return _is(table, lambda traits: axis in traits.axes)


def _is(table: TrainTable, has: Callable[[StrategyTraits], bool]) -> bool:
    """The strategy has this trait; `auto`, `explicit` and unknown names have none."""
    traits = traits_of(table.strategy)
    return traits is not None and has(traits)


_TABLE = "train.parameter_server"


def _parameter_server_rules(train: TrainTable) -> Iterator[ConfigProblem]:
    """Problems of `[train.parameter_server]`, and of a strategy without it."""
    table, strategy = train.parameter_server, train.strategy
    if traits_of(strategy) is not WORKERS:
        if table is not None:
            wanted = f'strategy = "{WORKERS.name}"'
            yield ConfigProblem(_TABLE, wanted, f"strategy = {show(strategy)}", "leave the table out")
        return
    if table is None:
        yield ConfigProblem(f"{_TABLE}.workers", f"a value for {show(strategy)}", "nothing", "workers = 4")
        return
    if table.quorum != "auto" and table.quorum > table.workers:
        wanted = f"at most workers = {table.workers}"
        yield ConfigProblem(f"{_TABLE}.quorum", wanted, show(table.quorum), '"auto" is three quarters of them')
    batch, workers = train.global_batch, table.workers
    if workers >= 1 <= batch and batch % workers:
        works = f"{nearest_multiples(batch, workers)} works"
        yield ConfigProblem("train.global_batch", f"a multiple of workers = {workers}", show(batch), works)


def parameter_server_line_rules(line: Line) -> Iterator[ConfigProblem]:
    """Options of a whole line that need ranks that train together, or one gang."""
    if traits_of(line.prove.plan) is WORKERS:
        works = '"auto" opens the checkpoint under another plan of one gang'
        yield ConfigProblem("prove.plan", "a plan of one gang", show(line.prove.plan), works)
    if traits_of(line.train.strategy) is not WORKERS:
        return
    train, kind = line.train, line.train.compression.kind
    why = f'strategy = "{WORKERS.name}"'
    refused = [
        (line.project.command is not None, "project.command", "a task", "a command", "project.task has workers"),
        (kind in ("fp16", "powersgd"), "train.compression.kind", "none, bf16, int8 or topk", show(kind), '"int8"'),
        (train.recovery.mode != "restart", "train.recovery.mode", '"restart"', show(train.recovery.mode),
         "a worker that dies holds up no other one"),
        (train.recovery.non_finite == "rollback", "train.recovery.non_finite", "stop or skip", '"rollback"',
         "workers keep no checkpoint to go back to"),
        (isinstance(train.ranks, tuple), "train.ranks", "the ranks of one worker", show(train.ranks), '8 or "auto"'),
        (train.start != StartCheckpoint(), "train.start", "no start", "a checkpoint", "leave it out"),
        (line.federated is not None, "federated", "no federation", "a table", "leave one of the two out"),
        (line.evaluate.seeds > 1, "evaluate.seeds", "1", show(line.evaluate.seeds),
         "a gate with limit or tolerance_percent needs no band"),
        (line.evaluate.every_steps is not None, "evaluate.every_steps", "nothing", show(line.evaluate.every_steps),
         "leave it out: the end is evaluated"),
        (line.prove.replay_steps > 0, "prove.replay_steps", "0: the order of merges is not repeatable",
         show(line.prove.replay_steps), "tensors are compared without a replay"),
    ]  # fmt: skip
    for is_refused, key, wanted, found, works in refused:
        if is_refused:
            yield ConfigProblem(key, f"{wanted} with {why}", found, works)
