"""Buffers that forward passes change, such as the statistics of BatchNorm: one rule for every strategy.

After each step they are averaged over the ranks that saw different samples; integers are rounded. So all copies are
equal, it does not matter which rank saves, and all samples count. DDP would broadcast rank 0's instead, and sharded
models would keep one per rank. A dropped step restores them.

Only buffers that change are averaged: the statistics of torch's norms, whose changes leave no trace, and those that are
seen to be written; ranks exchange with the sums of a step whether there are new ones.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import REPLICATE, SHARD

Place = tuple[dict[str, Any], str]
"""Dictionary of a module that holds a buffer, and its name there: code may replace the tensor."""


class ChangingBuffers:
    """Buffers of one model on this rank; `begin` and `has_new_changes` are local, the other calls collective."""

    def __init__(self, context: RankContext, model: nn.Module) -> None:
        found = _saved_buffers(model)
        self._places = [place for place, _ in found]
        self._context = context
        self._known = [changes for _, changes in found]
        """Which ones change, equal on all ranks that hold them."""
        self._seen: list[tuple[int, int]] | None = None
        self._saved: list[Tensor | None] = []
        self._wires: list[GradientCollectives] | None = None

    def begin(self) -> None:
        """Called before the data of a step are fetched."""
        if self._seen is None:
            self._seen = [_version(tensor) for tensor in self._tensors()]
            self._save(range(len(self._places)))

    def forget(self) -> None:
        """Something other than a step wrote into them, on all ranks alike."""
        self._seen = None

    @property
    def has_new_changes(self) -> bool:
        """A buffer changed that is not among those that are averaged."""
        return any(mine and not known for mine, known in zip(self._changed(), self._known, strict=True))

    @torch.no_grad()
    def average(self, *, has_new_changes: bool) -> None:
        """Average all copies after a step. Collective if something changes.

        Args:
            has_new_changes: `has_new_changes` of any rank of the gang.
        """
        if has_new_changes and self._places:
            self._share_changes()
        numbers = [number for number, known in enumerate(self._known) if known]
        if numbers:
            self._average_tensors([self._tensor(number) for number in numbers])
            self._save(numbers)

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the buffers, because the current step is dropped; local, no effect between steps."""
        for number, (saved, changed) in enumerate(zip(self._saved, self._changed(), strict=False)):
            if saved is not None and (changed or self._known[number]):
                self._tensor(number).copy_(saved)

    def _share_changes(self) -> None:
        """Find out which buffers change on any of the ranks that hold them."""
        tensor = torch.tensor(self._changed(), dtype=torch.float64, device=self._context.device)
        for wire in self._peers():
            wire.mean(tensor)
        self._known = [bool(now) or before for now, before in zip(tensor.tolist(), self._known, strict=True)]

    def _average_tensors(self, tensors: Sequence[Tensor]) -> None:
        if not self._peers():
            return
        flat = torch.cat([each.detach().reshape(-1).to(self._context.device, torch.float64) for each in tensors])
        for wire in self._peers():
            wire.mean(flat)
        for tensor, mean in zip(tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True):
            tensor.copy_((mean if tensor.is_floating_point() else mean.round()).view_as(tensor))

    def _peers(self) -> list[GradientCollectives]:
        """Collectives over the ranks with other samples, by axis; local SGD and DiLoCo average replicas later."""
        if self._wires is None:
            context = self._context
            axes = (SHARD,) if context.plan.averages_rarely else (SHARD, REPLICATE)
            groups = [context.meshes.group(axis) for axis in axes]
            self._wires = [
                GradientCollectives(group, context.waits) for group in groups if group is not None and group.size() > 1
            ]
        return self._wires

    def _save(self, numbers: Sequence[int]) -> None:
        """Save copies if a step may be dropped or interrupted."""
        recovery = self._context.plan.recovery
        if recovery.non_finite == "skip" or recovery.mode == "live":
            self._saved = self._saved or [None] * len(self._places)
            for number in numbers:
                self._saved[number] = self._tensor(number).detach().clone()

    def _changed(self) -> list[bool]:
        if self._seen is None:
            return [False] * len(self._places)
        return [_version(tensor) != seen for tensor, seen in zip(self._tensors(), self._seen, strict=True)]

    def _tensors(self) -> list[Tensor]:
        return [self._tensor(number) for number in range(len(self._places))]

    def _tensor(self, number: int) -> Tensor:
        table, name = self._places[number]
        tensor: Tensor = table[name]
        return tensor


def _saved_buffers(model: nn.Module) -> list[tuple[Place, bool]]:
    """Persistent buffers of integers or real numbers, shared ones once, and whether they certainly change."""
    found: dict[int, tuple[Place, bool]] = {}
    for module in model.modules():
        passing: set[str] = module._non_persistent_buffers_set  # noqa: SLF001  # nothing else tells
        changes = isinstance(module, _NormBase) and module.track_running_stats
        for name, buffer in module._buffers.items():  # noqa: SLF001  # see `Place`
            if buffer is not None and name not in passing and not buffer.is_complex():
                place = (module._buffers, name)  # noqa: SLF001  # see `Place`
                found.setdefault(id(buffer), (place, changes and name in _STATISTICS))
    return list(found.values())


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _version(tensor: Tensor) -> tuple[int, int]:
    """Identity and version, which differ after each write."""
    return id(tensor), tensor._version  # noqa: SLF001  # what autograd itself looks at
