"""Rules of `[train.parameter_server]`, and of what a line with workers that train apart may not have."""

from collections.abc import Iterator

from gangline.spec.config.line import Line, TrainTable
from gangline.spec.config.problems import ConfigProblem, nearest_multiples, show
from gangline.spec.parameter_server import ParameterServer
from gangline.spec.plan import StartCheckpoint
from gangline.spec.strategies import WORKERS, traits_of

_TABLE = "train.parameter_server"


def parameter_server_rules(train: TrainTable) -> Iterator[ConfigProblem]:
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
    yield from _number_rules(table)
    batch, workers = train.global_batch, table.workers
    if workers >= 1 <= batch and batch % workers:
        works = f"{nearest_multiples(batch, workers)} works"
        yield ConfigProblem("train.global_batch", f"a multiple of workers = {workers}", show(batch), works)


def parameter_server_line_rules(line: Line) -> Iterator[ConfigProblem]:
    """Options of a whole line that need ranks that train together, or one gang."""
    if traits_of(line.prove.plan) is WORKERS:
        works = '"auto" opens the checkpoint under another plan of one gang'
        yield ConfigProblem("prove.plan", "a plan of one gang", show(line.prove.plan), works)
    if traits_of(line.train.strategy) is WORKERS:
        yield from _refused_options(line)


def _number_rules(table: ParameterServer) -> Iterator[ConfigProblem]:
    if table.quorum != "auto" and table.quorum > table.workers:
        wanted = f"at most workers = {table.workers}"
        yield ConfigProblem(f"{_TABLE}.quorum", wanted, show(table.quorum), '"auto" is three quarters of them')


def _refused_options(line: Line) -> Iterator[ConfigProblem]:
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
