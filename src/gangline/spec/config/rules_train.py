"""Rules of the table `train` of a line: numbers, names, batch sizes; `rules_options` has those of strategies."""

import re
from collections.abc import Iterator

from gangline.spec.config import grammar
from gangline.spec.config.line import CheckpointTable, MemoryTable, TrainTable
from gangline.spec.config.problems import ConfigProblem, at_least, nearest_multiples, one_of, show
from gangline.spec.config.rules_options import option_rules
from gangline.spec.config.rules_parameter_server import parameter_server_rules
from gangline.spec.config.secrets import is_reference, parse_reference, references_of
from gangline.spec.plan import SCHEDULES, Schedule
from gangline.spec.strategies import ONE_RANK, names, traits_of

RESERVED = frozenset(
    {
        "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "PYTHONHASHSEED", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    }
)  # fmt: skip
OPEN_TO_LINES = ("GANGLINE_WATCHDOG_", "GANGLINE_START_METHOD")
"""The only names of ours that a line may set: how long its first step takes, whether its imports bear a fork."""
_MOST_BATCH, _MOST_STEPS = 10**9, 10**10
_MOST_SEED = 2**63 - 1


def train_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    """Problems of `[train]`, but for those of `option_rules`."""
    yield from _number_rules(table)
    yield from _strategy_rules(table)
    yield from _batch_rules(table)
    yield from _environment_rules(table.env)
    yield from _memory_rules(table.memory)
    yield from _checkpoint_rules(table.checkpoint)
    yield from _schedule_rules(table)
    yield from option_rules(table)
    yield from parameter_server_rules(table)


def _number_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    yield from at_least("train.steps", table.steps, 1)
    if table.steps > _MOST_STEPS:
        yield ConfigProblem("train.steps", f"at most {_MOST_STEPS}", show(table.steps))
    yield from at_least("train.global_batch", table.global_batch, 1)
    if table.global_batch > _MOST_BATCH:
        yield ConfigProblem(
            "train.global_batch", f"at most {_MOST_BATCH}", show(table.global_batch), "count samples, not tokens"
        )
    if table.stop_at is not None and not 1 <= table.stop_at <= table.steps:
        works = "leave it out: training ends at train.steps"
        yield ConfigProblem("train.stop_at", f"a step from 1 to {table.steps}", show(table.stop_at), works)
    if not 0 <= table.seed <= _MOST_SEED:
        yield ConfigProblem("train.seed", "a whole number of at most 63 bits", show(table.seed))
    if table.clip_norm is not None and table.clip_norm <= 0:
        yield ConfigProblem(
            "train.clip_norm", "a norm above 0", show(table.clip_norm), "leave it out: nothing is clipped"
        )


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
    else:
        yield from at_least("train.ranks", table.ranks, 1, '"auto" takes what is there')
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


def _memory_rules(memory: MemoryTable) -> Iterator[ConfigProblem]:
    if not re.fullmatch(r"auto|none|selective|full|every_[1-9]\d{0,3}", memory.activation_checkpointing):
        wanted = one_of(["auto", "none", "selective", "full", "every_N"])
        yield ConfigProblem("train.memory.activation_checkpointing", wanted, show(memory.activation_checkpointing))
    yield from at_least("train.memory.loss_chunks", memory.loss_chunks, 1)


def _checkpoint_rules(checkpoint: CheckpointTable) -> Iterator[ConfigProblem]:
    yield from at_least("train.checkpoint.every", checkpoint.every, 1, '"auto" chooses')
    yield from at_least("train.checkpoint.keep", checkpoint.keep, 2, "the newest one may be broken")
    yield from at_least("train.checkpoint.peer_copies", checkpoint.peer_copies, 0)
    if checkpoint.max_unsaved_seconds <= 0:
        yield ConfigProblem("train.checkpoint.max_unsaved_seconds", "above 0", show(checkpoint.max_unsaved_seconds))


def _schedule_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    schedule = table.schedule
    if schedule.kind not in SCHEDULES and not grammar.TASK.fullmatch(schedule.kind):
        yield ConfigProblem("train.schedule.kind", f'{one_of(SCHEDULES)} or "module:function"', show(schedule.kind))
    if schedule.function is not None:
        works = f"leave it out: {schedule.function} decides alone"
        for key in ("warmup_steps", "final_ratio"):
            if (found := getattr(schedule, key)) != getattr(Schedule(), key):
                yield ConfigProblem(f"train.schedule.{key}", "no other key with a function", show(found), works)
    yield from at_least("train.schedule.warmup_steps", schedule.warmup_steps, 0)
    if schedule.warmup_steps > table.steps >= 1:
        wanted = f"at most train.steps = {table.steps}"
        yield ConfigProblem("train.schedule.warmup_steps", wanted, show(schedule.warmup_steps), "warm up for fewer")
    if not 0 <= schedule.final_ratio <= 1:
        yield ConfigProblem("train.schedule.final_ratio", "a share in [0, 1]", show(schedule.final_ratio))
