"""Metrics over the held-out split: each sample once, with the same sums in the same order at any world size.

Data-parallel ranks take batches in turn; their sums are gathered in the order of batches and added in double precision.
With equal micro-batches another world size gives the same bits, up to the arithmetic of the strategy.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gangline.errors import ConfigError, NonFiniteError, UsageError
from gangline.train import heartbeat
from gangline.train.account.reports import as_number
from gangline.train.loop.batches import collate
from gangline.train.loop.trainer import Trainer
from gangline.train.parallel.context_parallel import SequenceCut
from gangline.train.parallel.precision import autocast
from gangline.train.runtime.context import RankContext
from gangline.train.task import Batch

EVAL_LOSS = "eval_loss"
EVALUATE_SECONDS = 3600.0


def evaluate(trainer: Trainer, data: Any) -> dict[str, float]:
    """Mean loss of the held-out samples as `eval_loss`, and the metrics of the task's own `evaluate`; collective.

    Raises:
        ConfigError: There are no samples, or the task does not return a metric that the line names.
        NonFiniteError: A mean is not finite.
    """
    context = trainer.context
    trainer.engine.update.settle()
    means = mean_over(
        data,
        partial(batch_sums, trainer, trainer.wrapped.bare),
        context=context,
        model=trainer.wrapped.model,
        cut=trainer.cut,
    )
    return wanted_metrics(means, context.plan.evaluate_metrics)


def mean_over(
    data: Any, sums_of: Callable[[Batch], Mapping[str, tuple[Any, Any]]], *, context: RankContext, model: nn.Module,
    cut: SequenceCut | None,
) -> dict[str, float]:  # fmt: skip
    """Means of the (sum, weight) pairs that `sums_of` returns by name, with `model` in evaluation mode; collective.

    Raises:
        ConfigError: There are no samples, or their weights sum to 0.
        NonFiniteError: A mean is not finite.
    """
    if len(data) == 0:
        raise ConfigError("the holdout split has no samples; give more data or a larger data.holdout")
    with context.during("evaluate", at_most_seconds=EVALUATE_SECONDS):
        trains = model.training
        model.eval()
        try:
            with torch.no_grad():
                names, own = _own_batches(data, sums_of, context, cut)
        finally:
            model.train(trains)
        return _means(names, _in_order(own, context))


def _own_batches(
    data: Any, sums_of: Callable[[Batch], Mapping[str, tuple[Any, Any]]], context: RankContext, cut: SequenceCut | None
) -> tuple[list[str], Tensor]:
    """Names, and sums by (turn, name, total or weight) of batches r, r + n, ...; zeros if none is left.

    Every rank makes the same number of forward passes, because sharded models synchronize in each.
    """
    size, ranks = context.plan.micro_batch, context.data_ranks
    count = -(-len(data) // size)
    rows, names = [], list[str]()
    for turn in range(-(-count // ranks)):
        number = turn * ranks + context.data_rank
        start = number * size if number < count else 0
        batch = collate(data, range(start, min(start + size, len(data))), context.device)
        found = sums_of(batch if cut is None else cut(batch))
        if turn and found.keys() != set(names):
            raise ConfigError(f"metrics: wanted the same names for every batch, found {names} and {sorted(found)}")
        names = sorted(found)
        rows.append([_sum_and_weight(name, found[name]) if number < count else (0.0, 0.0) for name in names])
        heartbeat.beat(phase="evaluate")
    return names, torch.tensor(rows, dtype=torch.float64)


def _sum_and_weight(name: str, pair: Any) -> tuple[float, float]:
    try:
        total, weight = pair
        return as_number(f"the sum of {name}", total), as_number(f"the weight of {name}", weight)
    except (TypeError, ValueError, UsageError) as error:
        raise ConfigError(f"metrics: wanted {name} as (sum, weight), two numbers, of a batch; {error}") from error


def batch_sums(trainer: Trainer, model: nn.Module, batch: Batch) -> dict[str, tuple[float, float]]:
    """Sum and weight of the loss of `model` on a batch, and of the metrics of the task's own `evaluate`; local."""
    task, context = trainer.task, trainer.context
    loss = trainer.loss(model, batch)
    with autocast(context.plan.precision, context.device, sharded=trainer.wrapped.sharded):
        own = task.evaluate(model, batch) if hasattr(task, "evaluate") else {}
    return {name: _sum_and_weight(name, pair) for name, pair in {EVAL_LOSS: (loss.total, loss.weight), **own}.items()}


def _in_order(own: Tensor, context: RankContext) -> Tensor:
    """Sums of all batches, by (batch, name, total or weight), from those of each rank."""
    mesh = context.plan.mesh
    if mesh.world_size == 1:
        return own
    every = [torch.empty_like(own) for _ in range(mesh.world_size)]
    dist.all_gather(every, own, group=context.groups.control)
    shares = [torch.zeros_like(own) for _ in range(mesh.data_parallel)]
    for rank, sums in enumerate(every):
        if mesh.counts_metrics(rank):
            shares[mesh.data_rank(rank)] += sums
    return torch.stack(shares, dim=1).flatten(0, 1)


def _means(names: list[str], sums: Tensor) -> dict[str, float]:
    totals = [[sum(row) for row in zip(*batches, strict=True)] for batches in sums.transpose(0, 1).tolist()]
    if empty := [name for name, (_, weight) in zip(names, totals, strict=True) if not weight > 0]:
        raise ConfigError(f"metrics {empty}: their weights over the holdout split sum to 0")
    means = {name: total / weight for name, (total, weight) in zip(names, totals, strict=True)}
    if bad := [name for name, mean in means.items() if not math.isfinite(mean)]:
        raise NonFiniteError(f"metrics {bad} over the holdout split are not finite; the model has diverged")
    return means


def wanted_metrics(means: dict[str, float], names: tuple[str, ...]) -> dict[str, float]:
    """Those of `means` that the line names; all of them without names.

    Raises:
        ConfigError: One is missing.
    """
    if missing := sorted(set(names) - means.keys()):
        raise ConfigError(f"evaluate.metrics: the task does not return {missing}; it returns {sorted(means)}")
    return {name: means[name] for name in names or means}
