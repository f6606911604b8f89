"""Forward pass of a pipelined model on all ranks: one batch of any shape runs through the stages, without gradients."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from gangline.errors import ConfigError
from gangline.train.parallel.pipeline.packed_tensors import TensorChannel
from gangline.train.parallel.pipeline.stage_module import StageForward

Layouts = tuple[Tensor, ...]
"""Tensors on the meta device: shapes, dtypes, and whether they require gradients."""


class ForwardRelay:
    """Runs the stages of this rank, in their order, and passes values between ranks."""

    def __init__(self, parts: Mapping[int, nn.Module], owners: list[int], rank: int, post: TensorChannel) -> None:
        """`parts` are this rank's stages by number, `owners` says which rank holds each."""
        self._parts, self._owners, self._rank, self._post = parts, owners, rank, post

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Outputs of the last stage, on all ranks of the pipeline; collective."""
        if torch.is_grad_enabled():
            raise ConfigError(
                "a pipelined model was called with gradients enabled; only the runtime trains it, evaluation runs "
                "under torch.no_grad()"
            )
        value: Any = None
        for _, out in self._through(args, kwargs):
            value = out
        owner = self._owners[-1]
        return self._post.share(self.restore(value) if owner == self._rank else None, owner)

    def probe(self, kwargs: dict[str, Any]) -> dict[int, tuple[Layouts, Layouts]]:
        """Layouts that enter and leave each stage of this rank; weights and generators do not change."""
        found: dict[int, tuple[Layouts, Layouts]] = {}
        before: Layouts = ()
        with torch.enable_grad(), torch.random.fork_rng():
            for stage, value in self._through((), kwargs):
                before = _layouts(value) if stage is None else before
                if stage is not None:
                    found[stage] = (before, _layouts(value))
                    before = found[stage][1]
        return found

    def _through(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[int | None, Any]]:
        """(stage, outputs) for each stage of this rank; (None, value) for a value received before a stage."""
        value: Any = None
        try:
            for stage, owner in enumerate(self._owners):
                if owner != self._rank:
                    continue
                if stage and self._owners[stage - 1] != self._rank:
                    value = self._post.receive(self._owners[stage - 1])
                    yield None, value
                value = self._parts[stage](*args, **kwargs) if stage == 0 else self._parts[stage](*_arguments(value))
                yield stage, value
                if stage + 1 < len(self._owners) and self._owners[stage + 1] != self._rank:
                    self._post.send(value, self._owners[stage + 1])
        finally:
            for part in self._parts.values():
                _reshard(part)

    def restore(self, flat: Any) -> Any:
        """Outputs of the model, from the tensors that its last stage returned; on the rank of that stage."""
        forward = self._parts[len(self._owners) - 1].forward
        assert isinstance(forward, StageForward), "every stage has one"
        return forward.restored(flat)


def _arguments(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _layouts(value: Any) -> Layouts:
    return tuple(
        torch.empty(argument.shape, dtype=argument.dtype, device="meta", requires_grad=argument.requires_grad)
        for argument in _arguments(value)
    )


def _reshard(part: nn.Module) -> None:
    """Free gathered parameters: a schedule gathers by itself, and checkpoints save shards."""
    for module in part.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
