"""Rules of the table `train` of a line: numbers, names, and which strategy can carry which option."""

import re
from collections.abc import Iterator
from dataclasses import fields
from math import prod

from gangline.spec import grammar
from gangline.spec.line import CheckpointTable, MemoryTable, MeshTable, TrainTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Compression
from gangline.spec.problems import Problem, at_least, one_of, show

STRATEGIES = (
    "none", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "tp", "cp", "ep", "pp", "3d", "local_sgd", "diloco",
)  # fmt: skip
AXES = tuple(each.name for each in fields(Mesh))
RESERVED = frozenset(
    {
        "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "PYTHONHASHSEED", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    }
)  # fmt: skip
OPEN_TO_LINES = ("GANGLINE_WATCHDOG_", "GANGLINE_START_METHOD")
"""The only names of ours that a line may set: how long its first step takes, whether its imports bear a fork."""
_WITHOUT_REPLICAS = frozenset({"none", "zero2", "zero3", "fsdp", "tp", "cp", "ep", "pp", "3d"})
_DATA_PARALLEL = frozenset({"auto", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "local_sgd", "diloco"})
_BY_CUTS = frozenset({"tp", "cp", "ep", "pp", "3d"})
_MOST_BATCH = 10**9
_MOST_SEED = 2**63 - 1


def train_rules(table: TrainTable) -> Iterator[Problem]:
    yield from _number_rules(table)
    yield from _strategy_rules(table)
    yield from _batch_rules(table)
    yield from _environment_rules(table.env)
    yield from _mesh_rules(table.mesh, table)
    yield from _memory_rules(table.memory)
    yield from _compression_rules(table)
    yield from _checkpoint_rules(table.checkpoint)
    yield from _schedule_rules(table)
    yield from _recovery_rules(table)


def nearest_multiples(value: int, unit: int) -> str:
    """The two multiples of `unit` beside `value`, as a message names them."""
    below = value // unit * unit
    return f"{below} or {below + unit}" if below else f"{unit}"


def _number_rules(table: TrainTable) -> Iterator[Problem]:
    yield from at_least("train.steps", table.steps, 1)
    yield from at_least("train.global_batch", table.global_batch, 1)
    if table.global_batch > _MOST_BATCH:
        yield Problem(
            "train.global_batch", f"at most {_MOST_BATCH}", show(table.global_batch), "count samples, not tokens"
        )
    if table.stop_at is not None and not 1 <= table.stop_at <= table.steps:
        works = "leave it out: training ends at train.steps"
        yield Problem("train.stop_at", f"a step from 1 to {table.steps}", show(table.stop_at), works)
    if not 0 <= table.seed <= _MOST_SEED:
        yield Problem("train.seed", "a whole number of at most 63 bits", show(table.seed))
    if table.clip_norm is not None and table.clip_norm <= 0:
        yield Problem("train.clip_norm", "a norm above 0", show(table.clip_norm), "leave it out: nothing is clipped")


def _strategy_rules(table: TrainTable) -> Iterator[Problem]:
    names = ("auto", "explicit", *STRATEGIES)
    if table.strategy not in names:
        yield Problem("train.strategy", one_of(names), show(table.strategy), '"auto" lets the planner choose')
    if isinstance(table.ranks, tuple):
        low, high = table.ranks
        if not 1 <= low <= high:
            yield Problem("train.ranks", "[min, max] with 1 <= min <= max", f"[{low}, {high}]", "[2, 8] is elastic")
    else:
        yield from at_least("train.ranks", table.ranks, 1, '"auto" takes what is there')
    least = table.ranks[0] if isinstance(table.ranks, tuple) else table.ranks
    if table.strategy == "none" and isinstance(least, int) and least > 1:
        yield Problem("train.ranks", 'one rank with strategy = "none"', show(table.ranks), '"ddp" shares the batch')


def _batch_rules(table: TrainTable) -> Iterator[Problem]:
    """Every data-parallel rank gets the same number of whole micro-batches."""
    if table.strategy == "explicit":
        shares, name = table.mesh.dp_replicate * table.mesh.dp_shard, "dp_replicate x dp_shard"
    elif table.strategy in _DATA_PARALLEL and isinstance(table.ranks, int):
        shares, name = table.ranks, "train.ranks"
    else:
        shares, name = 1, "one rank"
    micro = table.mesh.micro_batch if isinstance(table.mesh.micro_batch, int) else 1
    unit = shares * micro
    if unit < 1 or table.global_batch < 1 or table.global_batch % unit == 0:
        return
    name = f"{name} = {shares}" + (f" x micro_batch = {micro}" if micro > 1 else "")
    works = f"{nearest_multiples(table.global_batch, unit)} works"
    yield Problem("train.global_batch", f"a multiple of {name}", show(table.global_batch), works)


def _environment_rules(env: dict[str, str]) -> Iterator[Problem]:
    for name, value in env.items():
        key = f"train.env.{name[:60]}"
        ours = name.startswith("GANGLINE_") and not name.startswith(OPEN_TO_LINES)
        if not grammar.VARIABLE.fullmatch(name):
            yield Problem(key, "the name of a variable", show(name), "letters, digits and _")
        elif name in RESERVED or ours:
            yield Problem(key, "a name of your own", "one that the gang sets", "choose another")
        if "\0" in value:
            yield Problem(key, "text", "a NUL character")


def _mesh_rules(mesh: MeshTable, table: TrainTable) -> Iterator[Problem]:
    degrees = {axis: getattr(mesh, axis) for axis in AXES}
    for axis, degree in degrees.items():
        yield from at_least(f"train.mesh.{axis}", degree, 1, "leave an unused axis out")
        if degree != 1 and table.strategy != "explicit":
            works = 'strategy = "explicit" takes degrees'
            yield Problem(
                f"train.mesh.{axis}", f"no degree with strategy = {show(table.strategy)}", show(degree), works
            )
    if table.strategy == "explicit" and min(degrees.values()) >= 1:
        yield from _degree_rules(degrees, table.ranks)
    yield from _idle_rules(mesh, table)
    yield from at_least("train.mesh.micro_batch", mesh.micro_batch, 1, '"auto" chooses')
    yield from at_least("train.mesh.bucket_bytes", mesh.bucket_bytes, 1, '"auto" leaves it to torch')


def _idle_rules(mesh: MeshTable, table: TrainTable) -> Iterator[Problem]:
    """Options that would say nothing about the strategy of the line."""
    is_explicit = table.strategy == "explicit"
    if mesh.pp_schedule != "auto" and not (mesh.pp > 1 if is_explicit else table.strategy in ("pp", "3d")):
        works = 'leave it out; "pp", "3d" and an explicit pp have a schedule'
        yield Problem("train.mesh.pp_schedule", "none without stages", show(mesh.pp_schedule), works)
    if mesh.context != "ring" and not (mesh.cp > 1 if is_explicit else table.strategy == "cp"):
        works = 'leave it out; "cp" and an explicit cp cut sequences'
        yield Problem("train.mesh.context", "none without cut sequences", show(mesh.context), works)
    if mesh.bucket_bytes != "auto" and not _has_buckets(table):
        works = 'leave it out; "ddp", "zero1", "local_sgd" and "diloco" have buckets'
        yield Problem(
            "train.mesh.bucket_bytes", "none where blocks are averaged one by one", show(mesh.bucket_bytes), works
        )


def _has_buckets(table: TrainTable) -> bool:
    mesh = table.mesh
    if table.strategy == "explicit":
        return mesh.dp_replicate > 1 and max(mesh.pp, mesh.dp_shard, mesh.cp, mesh.tp) == 1
    return table.strategy in ("auto", "ddp", "zero1", "local_sgd", "diloco")


def _degree_rules(degrees: dict[str, int], ranks: object) -> Iterator[Problem]:
    world = prod(degree for axis, degree in degrees.items() if axis != "ep")
    works = f'{world} or "auto" works' if world > 1 else f"train.mesh.dp_shard = {ranks} shards over them all"
    if isinstance(ranks, int) and ranks != world:
        yield Problem("train.ranks", f"the product of the degrees, {world}", show(ranks), works)
    if isinstance(ranks, tuple) and not ranks[0] <= world <= ranks[1]:
        wanted = f"a range around the product of the degrees, {world}"
        yield Problem("train.ranks", wanted, show(list(ranks)), f'{world} or "auto" works')
    if (degrees["dp_shard"] * degrees["cp"]) % degrees["ep"]:
        yield Problem("train.mesh.ep", "a divisor of dp_shard x cp", show(degrees["ep"]))


def _memory_rules(memory: MemoryTable) -> Iterator[Problem]:
    if not re.fullmatch(r"auto|none|selective|full|every_[1-9]\d{0,3}", memory.activation_checkpointing):
        wanted = one_of(["auto", "none", "selective", "full", "every_N"])
        yield Problem("train.memory.activation_checkpointing", wanted, show(memory.activation_checkpointing))
    yield from at_least("train.memory.loss_chunks", memory.loss_chunks, 1)


def _has_replicas(table: TrainTable) -> bool:
    if table.strategy == "explicit":
        return table.mesh.dp_replicate > 1
    return table.strategy not in _WITHOUT_REPLICAS


def _is_cut(table: TrainTable) -> bool:
    if table.strategy == "explicit":
        return max(table.mesh.pp, table.mesh.cp, table.mesh.tp, table.mesh.ep) > 1
    return table.strategy in _BY_CUTS


def _compression_rules(table: TrainTable) -> Iterator[Problem]:
    compression = table.compression
    if compression.kind not in ("none", "bf16") and not _has_replicas(table):
        wanted = f"an axis dp_replicate for {compression.kind}"
        works = 'bf16 works wherever ranks average; "ddp" and "hsdp" have replicas'
        yield Problem("train.compression.kind", wanted, f"strategy = {show(table.strategy)}", works)
    elif compression.kind not in ("none", "bf16") and _is_cut(table):
        works = "bf16 works wherever ranks average; without tp, cp, pp and ep every kind does"
        yield Problem("train.compression.kind", "none or bf16 where the model is cut", show(compression.kind), works)
    yield from at_least("train.compression.rank", compression.rank, 1)
    if not 0 < compression.ratio <= 1:
        yield Problem("train.compression.ratio", "a share in (0, 1]", show(compression.ratio))
    yield from _outer_rules(table.strategy, compression)


_OUTER = {
    "outer_steps": "16 lets replicas meet every 16 steps",
    "outer_lr": "0.7 is usual, 1.0 takes the mean of the replicas",
}


def _outer_rules(strategy: str, compression: Compression) -> Iterator[Problem]:
    needed = {"local_sgd": ("outer_steps",), "diloco": ("outer_steps", "outer_lr")}.get(strategy, ())
    for name in needed:
        if getattr(compression, name) is None:
            yield Problem(f"train.compression.{name}", f"a value for {show(strategy)}", "nothing", _OUTER[name])
    for name in ("outer_steps", "outer_lr"):
        value = getattr(compression, name)
        if value is not None and name not in needed:
            works = 'leave it out; strategy = "diloco" has outer steps and a rate for them'
            yield Problem(f"train.compression.{name}", f"none with strategy = {show(strategy)}", show(value), works)
    if strategy == "local_sgd" and compression.kind != "none":
        works = 'strategy = "diloco" with outer_lr = 1.0 and outer_momentum = 0.0 is the same, compressed'
        yield Problem("train.compression.kind", 'none with strategy = "local_sgd"', show(compression.kind), works)
    yield from at_least("train.compression.outer_steps", compression.outer_steps, 1)
    if compression.outer_lr is not None and compression.outer_lr <= 0:
        yield Problem("train.compression.outer_lr", "above 0", show(compression.outer_lr))
    if not 0 <= compression.outer_momentum < 1:
        yield Problem("train.compression.outer_momentum", "in [0, 1)", show(compression.outer_momentum), "0.9 is usual")


def _checkpoint_rules(checkpoint: CheckpointTable) -> Iterator[Problem]:
    yield from at_least("train.checkpoint.every", checkpoint.every, 1, '"auto" chooses')
    yield from at_least("train.checkpoint.keep", checkpoint.keep, 2, "the newest one may be broken")
    yield from at_least("train.checkpoint.peer_copies", checkpoint.peer_copies, 0)
    if checkpoint.max_unsaved_seconds <= 0:
        yield Problem("train.checkpoint.max_unsaved_seconds", "above 0", show(checkpoint.max_unsaved_seconds))


def _schedule_rules(table: TrainTable) -> Iterator[Problem]:
    schedule = table.schedule
    yield from at_least("train.schedule.warmup_steps", schedule.warmup_steps, 0)
    if schedule.warmup_steps > table.steps >= 1:
        wanted = f"at most train.steps = {table.steps}"
        yield Problem("train.schedule.warmup_steps", wanted, show(schedule.warmup_steps), "warm up for fewer")
    if not 0 <= schedule.final_ratio <= 1:
        yield Problem("train.schedule.final_ratio", "a share in [0, 1]", show(schedule.final_ratio))


def _recovery_rules(table: TrainTable) -> Iterator[Problem]:
    yield from at_least("train.recovery.max_events", table.recovery.max_events, 0)
    if table.recovery.mode == "live" and not _has_replicas(table):
        found = f"strategy = {show(table.strategy)}"
        yield Problem("train.recovery.mode", 'an axis dp_replicate for "live"', found, '"restart" works everywhere')
    if table.recovery.stragglers == "rebalance" and (reason := _never_dealt(table)):
        works = '"name" works everywhere, "evict" with train.ranks = [least, most]'
        yield Problem("train.recovery.stragglers", reason, '"rebalance"', works)
    if table.recovery.stragglers == "evict" and not isinstance(table.ranks, tuple):
        wanted = "train.ranks = [least, most], so that plans for fewer nodes are ready"
        yield Problem("train.recovery.stragglers", wanted, '"evict"', '"name" works everywhere')


def _never_dealt(table: TrainTable) -> str:
    """What replicas lack to take unequal shares of a batch; empty: nothing."""
    if not _has_replicas(table):
        return "an axis dp_replicate, whose replicas share the work unevenly"
    if table.strategy in ("pp", "3d") or (table.strategy == "explicit" and table.mesh.pp > 1):
        return "no pipeline, for its stages take equal numbers of micro-batches"
    return "replicas that average every step" if table.strategy in ("local_sgd", "diloco") else ""
