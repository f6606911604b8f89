"""Rules of the table `train` of a line: numbers, names, and which strategy can carry which option."""

import re
from collections.abc import Iterator
from math import prod

from gangline.spec import grammar
from gangline.spec.line import CheckpointTable, MemoryTable, MeshTable, TrainTable
from gangline.spec.problems import Problem, one_of, show

STRATEGIES = (
    "none", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "tp", "cp", "ep", "pp", "3d", "local_sgd", "diloco",
)  # fmt: skip
PP_SCHEDULES = (
    "auto", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv", "dualpipev",
)  # fmt: skip
AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
RESERVED = frozenset(
    {
        "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "PYTHONHASHSEED", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    }
)  # fmt: skip
OPEN_TO_LINES = ("GANGLINE_WATCHDOG_", "GANGLINE_START_METHOD")
"""The only names of ours that a line may set: how long its first step takes, whether its imports bear a fork."""
_WITHOUT_REPLICAS = frozenset({"none", "zero2", "zero3", "fsdp", "tp", "cp", "ep", "pp"})
_DATA_PARALLEL = frozenset({"auto", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"})
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


def _at_least(key: str, value: object, least: int, works: str = "") -> Iterator[Problem]:
    if isinstance(value, (int, float)) and value < least:
        yield Problem(key, f"at least {least}", show(value), works)


def _number_rules(table: TrainTable) -> Iterator[Problem]:
    yield from _at_least("train.steps", table.steps, 1)
    yield from _at_least("train.global_batch", table.global_batch, 1)
    if table.global_batch > _MOST_BATCH:
        yield Problem(
            "train.global_batch", f"at most {_MOST_BATCH}", show(table.global_batch), "count samples, not tokens"
        )
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
        yield from _at_least("train.ranks", table.ranks, 1, '"auto" takes what is there')
    if table.strategy == "none" and isinstance(table.ranks, int) and table.ranks > 1:
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
        yield from _at_least(f"train.mesh.{axis}", degree, 1, "leave an unused axis out")
        if degree != 1 and table.strategy != "explicit":
            works = 'strategy = "explicit" takes degrees'
            yield Problem(
                f"train.mesh.{axis}", f"no degree with strategy = {show(table.strategy)}", show(degree), works
            )
    if table.strategy == "explicit" and min(degrees.values()) >= 1:
        yield from _degree_rules(degrees, table.ranks)
    if mesh.pp_schedule not in PP_SCHEDULES:
        yield Problem("train.mesh.pp_schedule", one_of(PP_SCHEDULES), show(mesh.pp_schedule))
    yield from _at_least("train.mesh.micro_batch", mesh.micro_batch, 1, '"auto" chooses')
    yield from _at_least("train.mesh.bucket_bytes", mesh.bucket_bytes, 1, '"auto" leaves it to torch')


def _degree_rules(degrees: dict[str, int], ranks: object) -> Iterator[Problem]:
    world = prod(degree for axis, degree in degrees.items() if axis != "ep")
    if isinstance(ranks, int) and ranks != world:
        yield Problem("train.ranks", f"the product of the degrees, {world}", show(ranks), f'{world} or "auto" works')
    if (degrees["dp_shard"] * degrees["cp"]) % degrees["ep"]:
        yield Problem("train.mesh.ep", "a divisor of dp_shard x cp", show(degrees["ep"]))


def _memory_rules(memory: MemoryTable) -> Iterator[Problem]:
    if not re.fullmatch(r"auto|none|selective|full|every_[1-9]\d{0,3}", memory.activation_checkpointing):
        wanted = one_of(["auto", "none", "selective", "full", "every_N"])
        yield Problem("train.memory.activation_checkpointing", wanted, show(memory.activation_checkpointing))
    yield from _at_least("train.memory.loss_chunks", memory.loss_chunks, 1)


def _has_replicas(table: TrainTable) -> bool:
    if table.strategy == "explicit":
        return table.mesh.dp_replicate > 1
    return table.strategy not in _WITHOUT_REPLICAS


def _compression_rules(table: TrainTable) -> Iterator[Problem]:
    compression = table.compression
    if compression.kind not in ("none", "bf16") and not _has_replicas(table):
        wanted = f"an axis dp_replicate for {compression.kind}"
        works = 'bf16 works everywhere; "ddp" and "hsdp" have replicas'
        yield Problem("train.compression.kind", wanted, f"strategy = {show(table.strategy)}", works)
    yield from _at_least("train.compression.rank", compression.rank, 1)
    if not 0 < compression.ratio <= 1:
        yield Problem("train.compression.ratio", "a share in (0, 1]", show(compression.ratio))
    if table.strategy in ("local_sgd", "diloco"):
        for name in ("outer_steps", "outer_lr"):
            if getattr(compression, name) is None:
                yield Problem(f"train.compression.{name}", f"a value for {show(table.strategy)}", "nothing", "set it")
    yield from _at_least("train.compression.outer_steps", compression.outer_steps, 1)
    if compression.outer_lr is not None and compression.outer_lr <= 0:
        yield Problem("train.compression.outer_lr", "above 0", show(compression.outer_lr))


def _checkpoint_rules(checkpoint: CheckpointTable) -> Iterator[Problem]:
    yield from _at_least("train.checkpoint.every", checkpoint.every, 1, '"auto" chooses')
    yield from _at_least("train.checkpoint.keep", checkpoint.keep, 2, "the newest one may be broken")
    yield from _at_least("train.checkpoint.peer_copies", checkpoint.peer_copies, 0)
    if checkpoint.max_unsaved_seconds <= 0:
        yield Problem("train.checkpoint.max_unsaved_seconds", "above 0", show(checkpoint.max_unsaved_seconds))


def _schedule_rules(table: TrainTable) -> Iterator[Problem]:
    schedule = table.schedule
    yield from _at_least("train.schedule.warmup_steps", schedule.warmup_steps, 0)
    if schedule.warmup_steps > table.steps >= 1:
        wanted = f"at most train.steps = {table.steps}"
        yield Problem("train.schedule.warmup_steps", wanted, show(schedule.warmup_steps), "warm up for fewer")
    if not 0 <= schedule.final_ratio <= 1:
        yield Problem("train.schedule.final_ratio", "a share in [0, 1]", show(schedule.final_ratio))


def _recovery_rules(table: TrainTable) -> Iterator[Problem]:
    yield from _at_least("train.recovery.max_events", table.recovery.max_events, 0)
    if table.recovery.mode == "live" and not _has_replicas(table):
        found = f"strategy = {show(table.strategy)}"
        yield Problem("train.recovery.mode", 'an axis dp_replicate for "live"', found, '"restart" works everywhere')
