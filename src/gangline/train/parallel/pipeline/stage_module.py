"""Stage of a model: the user's module without the parts that other stages hold, and its forward pass."""

import inspect
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from gangline.spec.plan import Precision
from gangline.train.parallel.model_parts import resolve
from gangline.train.parallel.pipeline.packed_tensors import flatten, restore
from gangline.train.parallel.precision import autocast
from gangline.train.task import ParallelHints

Value = Any
"""Value between blocks: a tensor, or a tuple of tensors that become arguments."""


def part_of(model: nn.Module, kept: Collection[str], *, path: str = "") -> nn.Module:
    """A copy of `model` with what is at or below the paths `kept`, and None in place of the rest.

    Modules at these paths are shared with `model`; their parents are copies with hooks of their own, because FSDP2
    registers hooks at each stage, and a rank may have several stages.
    """
    twin: Any = copy(model)
    twin.__dict__.update({name: copy(each) for name, each in vars(model).items() if name.endswith("_hooks")})
    prefix = f"{path}." if path else ""
    for store in ("_parameters", "_buffers"):
        own = getattr(model, store)
        setattr(twin, store, {name: each if prefix + name in kept else None for name, each in own.items()})
    twin._modules = {  # noqa: SLF001  # the only way to leave a module out without renumbering its list
        name: _child(child, prefix + name, kept)
        for name, child in model._modules.items()  # noqa: SLF001  # with its gaps
    }
    return twin  # type: ignore[no-any-return]  # copy of a Module


def _child(child: nn.Module | None, path: str, kept: Collection[str]) -> nn.Module | None:
    if child is None or path in kept:
        return child
    if any(each.startswith(f"{path}.") for each in kept):
        return part_of(child, kept, path=path)
    return None


def put(model: nn.Module, path: str, module: nn.Module | None) -> None:
    """Set `module` at `path` of `model`, in place; None leaves a gap, so that no neighbour is renumbered."""
    parent, _, name = path.rpartition(".")
    model.get_submodule(parent)._modules[name] = module  # noqa: SLF001  # a list refuses gaps


def merge(parts: Sequence[nn.Module]) -> nn.Module:
    """A module with everything that the parts of one model on this rank hold, under its names; parts do not change."""
    whole: Any = copy(parts[0])
    for store in ("_parameters", "_buffers"):
        stores = [getattr(part, store) for part in parts]
        setattr(whole, store, {name: _first([each[name] for each in stores]) for name in stores[0]})
    children = [part._modules for part in parts]  # noqa: SLF001  # with their gaps
    whole._modules = {name: _merged([child[name] for child in children]) for name in children[0]}  # noqa: SLF001  # see above
    return whole  # type: ignore[no-any-return]  # copy of a Module


def _merged(found: list[nn.Module | None]) -> nn.Module | None:
    there = [module for module in found if module is not None]
    if not there:
        return None
    return there[0] if all(module is there[0] for module in there) else merge(there)


def _first(found: list[Any]) -> Any:
    return next((each for each in found if each is not None), None)


class StageForward:
    """Forward pass of a stage: its part of head(blocks(embed(...)))."""

    def __init__(
        self, blocks: Sequence[nn.Module], *, embed: Callable[..., Any] | None, head: Callable[..., Any] | None,
        signature: inspect.Signature, precision: Precision, device: torch.device, sharded: bool,
    ) -> None:  # fmt: skip
        """`embed` of the first stage and `head` of the last, `signature` of the whole model's forward."""
        self._blocks, self._embed, self._head, self._signature = tuple(blocks), embed, head, signature
        self._precision, self._device, self._sharded = precision, device, sharded
        self.structure: Any = None
        """Structure of the last outputs of the last stage, which returns them as a flat tuple."""

    @staticmethod
    def of(
        part: Any, blocks: Sequence[str], hints: ParallelHints, *, is_first: bool, is_last: bool, precision: Precision,
        device: torch.device, sharded: bool,
    ) -> "StageForward":  # fmt: skip
        """Forward pass of `part` over its `blocks`, with embedding and head at the ends of the pipeline."""
        return StageForward(
            [part.get_submodule(name) for name in blocks],
            embed=resolve(part, str(hints.embed), "embed") if is_first else None,
            head=resolve(part, str(hints.head), "head") if is_last else None,
            signature=inspect.signature(part.forward), precision=precision, device=device, sharded=sharded,
        )  # fmt: skip

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with autocast(self._precision, self._device, sharded=self._sharded):
            value = self._enter(args, kwargs)
            for block in self._blocks:
                value = _feed(block, value)
            if self._head is None:
                return tuple(map(_own, value)) if isinstance(value, tuple) else _own(value)
            self.structure, tensors = flatten(_feed(self._head, value))
            return tuple(tensors)

    def restored(self, flat: Any) -> Any:
        """Outputs of the model, from the tensors that its last stage returned on this rank."""
        return restore(self.structure, flat)

    def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        if self._embed is None:
            return args[0] if len(args) == 1 else args
        bound = self._signature.bind(*args, **kwargs)
        return self._embed(*bound.args, **bound.kwargs)


def _feed(function: Callable[..., Any], value: Value) -> Value:
    return function(*value) if isinstance(value, tuple) else function(value)


def _own(value: Any) -> Any:
    """A contiguous tensor that is no view: torch detaches outputs of a stage in place, which views do not support, and
    sends contiguous tensors only."""
    if not isinstance(value, Tensor):
        return value
    is_view = value._is_view() and value.requires_grad  # noqa: SLF001  # nothing else tells
    return value.clone(memory_format=torch.contiguous_format) if is_view else value.contiguous()
