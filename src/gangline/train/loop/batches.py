"""Batches of this rank's samples, on its device: read in the rank itself, or ahead by workers."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.utils.data import default_collate

from gangline.errors import ConfigError
from gangline.keeper.ipc.environment import fault_order
from gangline.train.loop.prefetch import Pick, ReadAhead, SampleDraws
from gangline.train.loop.sample_order import (
    PositionOrder,
    SampleOrder,
    SampleSpan,
    Shares,
    micro_batches,
    next_positions,
    rank_spans,
)
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.datasets import DatasetRows
from gangline.train.task import Batch


def collate(data: Any, indices: Sequence[int], device: torch.device) -> Batch:
    """Batch of `data` at `indices`: dicts of equally shaped tensors or numbers, stacked.

    Raises:
        ConfigError: A sample is missing, is not a dict, or has other keys or shapes than the others of the batch.
    """
    return _on_device(_stacked([_sample(data, index) for index in indices], indices), device)


def _stacked(samples: list[dict[str, Any]], indices: Sequence[int]) -> Batch:
    try:
        batch: Batch = default_collate(samples)
    except (RuntimeError, KeyError, TypeError) as error:
        raise ConfigError(f"samples {list(indices)} cannot be collated: {_difference(samples) or error}") from error
    return batch


def _on_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}


def _read(data: Any, draws: SampleDraws | None, picks: Sequence[Pick]) -> Batch:
    """Batch of the samples of `picks`, whose draws follow their positions unless `draws` is None."""
    if type(data) is DatasetRows:
        return _rows(data, [index for _, index in picks])
    samples = []
    for position, index in picks:
        if draws is not None:
            draws.at(position)
        samples.append(_sample(data, index))
    return _stacked(samples, [index for _, index in picks])


def _rows(rows: DatasetRows, indices: Sequence[int]) -> Batch:
    try:
        batch = rows.batch(indices)
    except ValueError as error:
        found = _difference([rows[index] for index in indices]) or error
        raise ConfigError(f"samples {list(indices)} cannot be collated: {found}") from error
    return {name: each if isinstance(each, list) else torch.from_numpy(each) for name, each in batch.items()}


def _sample(data: Any, index: int) -> dict[str, Any]:
    try:
        sample = data[index]
    except (IndexError, StopIteration) as error:
        found = f"{type(error).__name__}: {error}"
        raise ConfigError(f"len(data) is {len(data)}, and data[{index}] raised {found}") from error
    if not isinstance(sample, dict):
        raise ConfigError(f"a sample must be a dict of tensors, build_data returned {type(sample).__name__}")
    return sample


def _difference(samples: Sequence[dict[str, Any]]) -> str:
    """How the samples differ; empty if no difference is found."""
    first = samples[0]
    for sample in samples:
        if sample.keys() != first.keys():
            return f"keys {sorted(first)} and {sorted(sample)}; give each sample the same ones"
        for name, value in sample.items():
            shapes = [tuple(getattr(each, "shape", ())) for each in (first[name], value)]
            if shapes[0] != shapes[1]:
                return f"{name!r} has the shapes {shapes[0]} and {shapes[1]}; pad or cut them in build_data"
    return ""


class StepData:
    """The train split by steps: each step takes the next positions, each rank its share in micro-batches."""

    def __init__(
        self, data: Any, *, seed: int, global_batch: int, ranks: int, rank: int, micro_batch: int, device: torch.device,
        cut: Callable[[Batch], Batch] | None = None, order: PositionOrder | None = None, workers: int = 0,
        prefetch: int = 2, seeds_samples: bool = False,
    ) -> None:  # fmt: skip
        """Args:
        ranks: Data-parallel ranks.
        rank: Of these, this one.
        cut: Reduces a batch to this rank's part of each sequence.
        order: Of the samples; None: that of `data`.
        workers: Processes that read samples; 0: this one does.
        prefetch: Batches that each worker reads ahead.
        seeds_samples: What samples draw is a function of seed and position; workers do so always.
        """
        self._device, self._cut = device, cut
        self._order = order or SampleOrder.of(data, seed=seed)
        self._global_batch = global_batch
        self._spans_of = partial(micro_batches, global_batch, ranks=ranks, rank=rank, micro_batch=micro_batch)
        self._shares: Shares = ()
        self._spans = self._spans_of()
        draws = type(data) is not DatasetRows  # rows as they are draw nothing
        self._draws = SampleDraws(seed) if draws and (seeds_samples or workers) else None
        self._read = partial(_read, data, self._draws)
        self._ahead: ReadAhead | None = None
        if workers:
            is_gpu = device.type == "cuda"
            self._ahead = ReadAhead(self._read, workers=workers, prefetch=prefetch, pin_memory=is_gpu)
        self._continues: tuple[int, tuple[SampleSpan, ...], Shares] | None = None
        """Cursor, skipped spans and shares of the step that workers are reading now."""

    @staticmethod
    def of(context: RankContext, data: Any, *, seed: int, cut: Callable[[Batch], Batch] | None) -> "StepData":
        """Steps of this rank as its plan says.

        Raises:
            ConfigError: There are more workers than cores.
        """
        plan, sets = context.plan, context.datasets
        workers, cores = plan.data.workers, len(os.sched_getaffinity(0))
        if workers > cores:
            raise ConfigError(f"data.workers = {workers}: wanted at most the {cores} cores of this node; lower it")
        return StepData(
            data, seed=seed, global_batch=plan.global_batch, ranks=context.data_ranks, rank=context.data_rank,
            micro_batch=plan.micro_batch, device=context.device, cut=cut,
            order=None if sets is None else sets.order_of(data, seed=seed, places=_places_of_node(context)),
            workers=0 if fault_order() else workers,  # a drill strikes a sample in the step that takes it
            prefetch=plan.data.prefetch, seeds_samples=bool(workers or plan.data.sets),
        )  # fmt: skip

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of this rank in the step that was requested last."""
        return len(self._spans)

    def step(
        self, cursor: int, skipped: Sequence[SampleSpan], shares: Shares = ()
    ) -> tuple[SampleSpan, Iterator[Batch]]:
        """Positions of the step at `cursor`, and this rank's micro-batches, created one by one."""
        if shares != self._shares:
            self._shares, self._spans = shares, self._spans_of(shares=shares)
        positions, after = next_positions(cursor, self._global_batch, skipped)
        if self._ahead is None:
            return (cursor, after), self._make(positions)
        now = (cursor, tuple(skipped), shares)
        if now != self._continues:
            self._ahead.begin(self._picks_from(cursor, skipped))
        self._continues = (after, *now[1:])
        return (cursor, after), self._take(self._ahead)

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._ahead is not None:
            self._ahead.close()

    def _picks(self, positions: Sequence[int]) -> Iterator[list[Pick]]:
        for start, stop in self._spans:
            own = positions[start:stop]
            yield list(zip(own, self._order.samples(own), strict=True))

    def _picks_from(self, cursor: int, skipped: Sequence[SampleSpan]) -> Iterator[list[Pick]]:
        while True:
            positions, cursor = next_positions(cursor, self._global_batch, skipped)
            yield from self._picks(positions)

    def _make(self, positions: list[int]) -> Iterator[Batch]:
        for picks in self._picks(positions):
            with self._draws.apart() if self._draws is not None else nullcontext():
                batch = self._read(picks)
            yield self._finished(batch)

    def _take(self, ahead: ReadAhead) -> Iterator[Batch]:
        for _ in self._spans:
            yield self._finished(ahead.next())

    def _finished(self, batch: Batch) -> Batch:
        batch = _on_device(batch, self._device)
        return batch if self._cut is None else self._cut(batch)


def _places_of_node(context: RankContext) -> Iterator[int]:
    """Places of a step that the ranks of this node take, by the shares of the plan."""
    plan, first = context.plan, context.rank - context.local_rank
    spans = rank_spans(plan.global_batch, ranks=context.data_ranks, shares=plan.shares)
    node = range(first, min(first + context.ranks_per_node, plan.world_size))
    return chain.from_iterable(range(*spans[each]) for each in {plan.mesh.data_rank(rank) for rank in node})
