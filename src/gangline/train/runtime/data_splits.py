"""Data splits of a task on this node: files are fetched once, shards of data sets when they are needed."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.distributed as dist

from gangline.errors import ConfigError
from gangline.spec.plan import Plan
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.dataset_files import data_paths, fetch_data_files
from gangline.train.runtime.datasets import RankDatasets
from gangline.train.runtime.shard_files import shard_files
from gangline.train.task import Task

FETCH_SECONDS = 1800.0
SHARD = ".shard"
"""Ending of data files that hold samples as tensors; other files are text."""


def fetch_data(context: RankContext) -> None:
    """Download the data files to this node, and open the data sets; collective."""
    if context.store is None:
        return
    with context.during("data", at_most_seconds=FETCH_SECONDS):
        if context.local_rank == 0:
            fetch_data_files(context.plan, context.data_folder, context.store)
        dist.barrier(context.groups.control)
        if context.plan.data.sets:
            context.datasets = _open_datasets(context, context.store)


def _open_datasets(context: RankContext, store: ObjectStore) -> RankDatasets:
    from gangline.data.versions import read_dataset  # few plans have data sets

    plan = context.plan
    return RankDatasets(
        plan.data, [read_dataset(store, use) for use in plan.data.sets], partial(shard_files, context),
        global_batch=plan.global_batch, fetches_ahead=context.local_rank == 0,
    )  # fmt: skip


def program_files(context: RankContext) -> list[str]:
    """Paths of the data for a program: its files, and all shards of its data sets, which are fetched by this call."""
    found = data_paths(context.plan, context.data_folder)
    if context.datasets is not None:
        found += context.datasets.put_shards(context.data_folder / "datasets")
    return found


def open_split(context: RankContext, task: Task, split: str, *, seed: int) -> Any:
    """Data that `build_data` returns for `split`, with a length and samples by number.

    Raises:
        ConfigError: They have no length, or no `[i]`.
    """
    more = {} if context.datasets is None else {"dataset": context.datasets.split(split)}
    return build_split(context.plan, task, split, data_paths(context.plan, context.data_folder), seed=seed, **more)


def build_split(plan: Plan, task: Task, split: str, paths: Sequence[str], *, seed: int, **more: object) -> Any:
    """Data of `split` from files and `more` options; raises as `open_split`."""
    options = {
        "text": [path for path in paths if not path.endswith(SHARD)],
        "shards": [path for path in paths if path.endswith(SHARD)],
        "holdout": plan.data.holdout, "seed": seed, "model": dict(plan.model), **more,
    }  # fmt: skip
    data = task.build_data(split, options)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise ConfigError(f"build_data({split!r}): wanted an object with len() and [i], found {type(data).__name__}")
    return data
