"""Check that a model computes what its pipeline stages compute: head(blocks(embed(...))), each block once, in order.

A forward pass that skips a block, calls one twice, or adds something around them would train another model without an
error. So model and stages run with the same inputs on fake tensors, and the derivations of their outputs are compared
by value numbering: two tensors with equal numbers were computed by the same operations from equal inputs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from gangline.errors import ConfigError
from gangline.train import attention
from gangline.train.parallel.model_parts import EmbedAndHead, find_blocks, find_embed_and_head, kept_of, listed
from gangline.train.parallel.pipeline.packed_tensors import flatten
from gangline.train.parallel.pipeline.stage_module import StageForward, part_of
from gangline.train.runtime.initialization import storage_of
from gangline.train.task import ParallelHints

MOST_PARAMETERS = 100_000_000
"""Limit for computing with random weights, if the model cannot run on fake tensors."""
NONE = "none of them"
WORKS = (
    'let forward be head(blocks(embed(...))), naming its two ends in ParallelHints(embed=..., head=...), or use "fsdp"'
)

_ONE_TO_ONE = frozenset({
    "aten::clone", "aten::detach", "aten::alias", "aten::contiguous", "aten::_to_copy", "aten::lift_fresh",
    "aten::view", "aten::_unsafe_view", "aten::expand",
})  # fmt: skip
"""Operations that return their input if shape and dtype are the same."""
_MOST_COMPARED = 4096
"""Largest number of elements of a constant whose values are compared."""


@dataclass(slots=True)
class _Trace:
    """Record of one forward pass."""

    blocks: list[str] = field(default_factory=list)
    """Blocks in the order of their calls."""
    entering: list[tuple[int, ...]] = field(default_factory=list)
    structure: Any = None
    outputs: tuple[int, ...] = ()
    buffers: dict[str, int] = field(default_factory=dict)


class ValueNumbering:
    """Numbers of derivations, shared by the forward passes that are compared."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, *derivation: Any) -> int:
        """Number of a derivation, new if it is the first of its kind."""
        return self._known.setdefault(derivation, len(self._known))


class Composition:
    """A model without weights, for the comparison with its stages; local, takes no memory."""

    def __init__(self, model: nn.Module, blocks: Sequence[str], ends: EmbedAndHead, hints: ParallelHints) -> None:
        """`model` is whole and not wrapped; it does not change."""
        self._shell = _copy(model, lambda tensor: torch.empty_like(tensor, device="meta"))
        self._blocks, self._ends, self._hints = list(blocks), ends, hints
        self._name = type(model).__name__

    @staticmethod
    def of(model: nn.Module, hints: ParallelHints) -> "Composition":
        """The composition of `model`, which is whole and not wrapped.

        Raises:
            ConfigError: The hints do not name embedding and head.
        """
        blocks = [name for name, _ in find_blocks(model, hints)]
        return Composition(model, blocks, find_embed_and_head(model, blocks, hints), hints)

    def require_same(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Refuse a model whose stages compute something else from these inputs of forward.

        Returns:
            Why the check was not possible; empty if it was.

        Raises:
            ConfigError: With the first difference.
        """
        if not self._blocks:
            return "it has no blocks"
        with attention.alone(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    for training in (True, False):
                        self._compare(_empty, args, kwargs, training=training)
            except _CannotFollowError as error:
                return self._computed(args, kwargs, str(error))
        return ""

    def _computed(self, args: Sequence[Any], kwargs: Mapping[str, Any], reason: str) -> str:
        """Compare with random weights, for models that read values."""
        parameters = sum(parameter.numel() for parameter in self._shell.parameters())
        if parameters > MOST_PARAMETERS:
            return reason
        try:
            self._compare(_random, args, kwargs, training=True)
        except _CannotFollowError as error:
            return str(error)
        return ""

    def _compare(
        self, make: Callable[[Tensor], Tensor], args: Sequence[Any], kwargs: Mapping[str, Any], *, training: bool
    ) -> None:
        numbering = ValueNumbering()
        whole, staged = (_copy(self._shell, make).train(training) for _ in range(2))
        inputs = tree_map(lambda each: _input(each, make), (tuple(args), dict(kwargs)))
        try:
            wanted = self._follow(numbering, whole, whole, inputs)
        except Exception as error:  # any error of user code on tensors without values
            raise _CannotFollowError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
        try:
            trace = self._follow(numbering, staged, self._stages(staged), inputs)
        except ConfigError:
            raise
        except Exception as error:
            raise self._refusal(f"stages cannot compute what it does: {error!r}") from error
        if difference := self._difference(wanted, trace):
            raise self._refusal(difference)

    def _follow(self, numbering: ValueNumbering, model: nn.Module, call: Callable[..., Any], inputs: Any) -> _Trace:
        args, kwargs = inputs
        named = [*model.named_parameters(), *model.named_buffers(), *_named(inputs)]
        recorder, trace = OperationRecorder(numbering, dict(named)), _Trace()
        with ExitStack() as stack:
            for name in self._blocks:
                stack.enter_context(_recording(model.get_submodule(name), name, recorder, trace))
            stack.enter_context(recorder)
            outputs = call(*args, **kwargs)
        trace.structure, tensors = flatten(outputs)
        trace.outputs = recorder.numbers(tensors)
        trace.buffers = {name: recorder.number(tensor) for name, tensor in model.named_buffers()}
        return trace

    def _stages(self, model: nn.Module) -> Callable[..., Any]:
        """A stage for each block, which computes the same as any other cut."""
        last = len(self._blocks) - 1
        forwards = []
        for number, name in enumerate(self._blocks):
            is_first, is_last = number == 0, number == last
            part = part_of(model, kept_of([name], self._ends, is_first=is_first, is_last=is_last))
            forwards.append(StageForward.of(
                part, [name], self._hints, is_first=is_first, is_last=is_last, precision="fp32",
                device=torch.device("cpu"), sharded=False,
            ))  # fmt: skip

        def through(*args: Any, **kwargs: Any) -> Any:
            value = forwards[0](*args, **kwargs)
            for forward in forwards[1:]:
                value = forward(*value) if isinstance(value, tuple) else forward(value)
            return forwards[-1].restored(value)

        return through

    def _difference(self, wanted: _Trace, found: _Trace) -> str:
        if wanted.blocks != found.blocks:
            return f"it calls {listed(wanted.blocks) or NONE}, and the blocks are {listed(found.blocks) or NONE}"
        before = f"what {self._hints.embed} returns"
        for name, whole, staged in zip(wanted.blocks, wanted.entering, found.entering, strict=True):
            if whole != staged:
                return f"what enters {name} is not {before}"
            before = f"what {name} returns"
        if wanted.structure != found.structure:
            return f"it returns other outputs than {self._hints.head}"
        if wanted.outputs != found.outputs:
            return f"its outputs are not what {self._hints.head} makes of {before}"
        different = [name for name, number in wanted.buffers.items() if found.buffers[name] != number]
        return f"it leaves something else in {listed(different)}" if different else ""

    def _refusal(self, difference: str) -> ConfigError:
        return ConfigError(
            f"hints.embed, hints.head: stages of a pipeline compute head(blocks(embed(...))), and forward of "
            f"{self._name} does something else: {difference}; {WORKS}"
        )


class OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Records every operation of one forward pass."""

    def __init__(self, numbering: ValueNumbering, given: Mapping[str, Tensor]) -> None:
        """`given`: inputs, parameters and buffers, under the same names in all forward passes."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._of = numbering.of
        self._seen: dict[int, tuple[Tensor, int]] = {}
        self._written: dict[int, int] = {}
        """Number of what was written into a storage."""
        self._drawn: Counter[Any] = Counter()
        for name, tensor in given.items():
            self._remember(tensor, self._of("given", name))

    def number(self, value: Any) -> int:
        """Number of the derivation of `value` so far; equal constants have equal numbers."""
        if not isinstance(value, Tensor):
            return self._of("constant", repr(value))
        written = self._written.get(storage_of(value))
        return self._own(value) if written is None else self._of("written", self._own(value), written)

    def numbers(self, values: Any) -> tuple[int, ...]:
        """Numbers of everything in a nested value except None."""
        return tuple(self.number(leaf) for leaf in tree_leaves(values) if leaf is not None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs or {}))
        derivation: tuple[Any, ...] = (str(func), *map(self.number, given))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._drawn[derivation] += 1
            derivation = (*derivation, self._drawn[derivation])
        written = _written_by(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        for place, tensor in enumerate(written):
            self._written[storage_of(tensor)] = self._of(*derivation, "writes", place)
        self._record(func, given, out, derivation)
        return out

    def _record(self, func: Any, given: Sequence[Any], out: Any, derivation: tuple[Any, ...]) -> None:
        for place, tensor in enumerate(tree_leaves(out)):
            if not isinstance(tensor, Tensor) or any(tensor is each for each in given):
                continue
            source = given[0] if given else None
            is_same = isinstance(source, Tensor) and (source.shape, source.dtype) == (tensor.shape, tensor.dtype)
            if func._schema.name in _ONE_TO_ONE and is_same and isinstance(source, Tensor):  # noqa: SLF001  # an operator's only description
                shares = storage_of(tensor) == storage_of(source)
                self._remember(tensor, self._own(source) if shares else self.number(source))
            else:
                self._remember(tensor, self._of(*derivation, place))

    def _own(self, tensor: Tensor) -> int:
        """Number without later writes into its storage."""
        if id(tensor) not in self._seen:
            self._remember(tensor, self._of("found", tensor.dtype, tuple(tensor.shape), _contents(tensor)))
        return self._seen[id(tensor)][1]

    def _remember(self, tensor: Tensor, number: int) -> None:
        self._seen[id(tensor)] = (tensor, number)  # a reference, so that no other tensor gets its id or storage


class _CannotFollowError(Exception):
    """The model fails on the tensors of the check."""


@contextmanager
def _recording(block: nn.Module, name: str, recorder: OperationRecorder, trace: _Trace) -> Iterator[None]:
    def note(_: nn.Module, args: Any, kwargs: Any) -> None:
        trace.blocks.append(name)
        trace.entering.append(recorder.numbers((args, kwargs)))

    handle = block.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _copy(model: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of `model` with other tensors as parameters and buffers."""
    memo: dict[int, Any] = {id(buffer): make(buffer) for buffer in model.buffers()}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(make(parameter.detach()), requires_grad=parameter.requires_grad)
    return deepcopy(model, memo)


def _empty(like: Tensor) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="cpu")


def _random(like: Tensor) -> Tensor:
    made = torch.zeros(like.shape, dtype=like.dtype)
    return made.normal_(std=0.02) if made.is_floating_point() else made


def _input(value: Any, make: Callable[[Tensor], Tensor]) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().cpu() if make is _random else make(value)


def _named(inputs: Any) -> Iterator[tuple[str, Tensor]]:
    leaves = torch.utils._pytree.tree_leaves(inputs)  # noqa: SLF001  # nothing public walks nested values
    return ((f"input {place}", leaf) for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor))


def _written_by(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    tensors = []
    for place, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # see above
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            tensors += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return tensors


def _contents(tensor: Tensor) -> str:
    """Values of a small constant."""
    if type(tensor) is not Tensor or tensor.is_meta or tensor.numel() > _MOST_COMPARED:
        return ""
    with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001  # the read is not part of the forward pass
        return repr(tensor.detach().tolist())
