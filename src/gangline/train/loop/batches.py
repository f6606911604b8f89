"""Batches of this rank's samples, on its device."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import default_collate

from gangline.errors import ConfigError
from gangline.train.loop.sample_order import SampleOrder, SampleSpan, Shares, micro_batches, next_positions
from gangline.train.task import Batch


def collate(data: Any, indices: Sequence[int], device: torch.device) -> Batch:
    """Batch of `data` at `indices`: dicts of equally shaped tensors or numbers, stacked.

    Raises:
        ConfigError: A sample is missing, is not a dict, or has other keys or shapes than the others of the batch.
    """
    samples = [_sample(data, index) for index in indices]
    try:
        batch: Batch = default_collate(samples)
    except (RuntimeError, KeyError, TypeError) as error:
        raise ConfigError(f"samples {list(indices)} cannot be collated: {_difference(samples) or error}") from error
    if device.type == "cpu":
        return batch
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}


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
        cut: Callable[[Batch], Batch] | None = None,
    ) -> None:  # fmt: skip
        """Args:
        ranks: Data-parallel ranks.
        rank: Of these, this one.
        cut: Reduces a batch to this rank's part of each sequence.
        """
        self._data, self._device, self._cut = data, device, cut
        self._order = SampleOrder.of(data, seed=seed)
        self._global_batch = global_batch
        self._spans_of = partial(micro_batches, global_batch, ranks=ranks, rank=rank, micro_batch=micro_batch)
        self._shares: Shares = ()
        self._spans = self._spans_of()

    @property
    def num_micro_batches(self) -> int:
        """Of this rank, in the step that was requested last."""
        return len(self._spans)

    def step(
        self, cursor: int, skipped: Sequence[SampleSpan], shares: Shares = ()
    ) -> tuple[SampleSpan, Iterator[Batch]]:
        """Positions of the step at `cursor`, and this rank's micro-batches, created one by one."""
        if shares != self._shares:
            self._shares, self._spans = shares, self._spans_of(shares=shares)
        positions, after = next_positions(cursor, self._global_batch, skipped)
        return (cursor, after), self._make(positions)

    def _make(self, positions: list[int]) -> Iterator[Batch]:
        for start, stop in self._spans:
            indices = [self._order.sample(position) for position in positions[start:stop]]
            batch = collate(self._data, indices, self._device)
            yield batch if self._cut is None else self._cut(batch)
