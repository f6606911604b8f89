"""Value numbering of tensors: two tensors with equal numbers were computed by the same operations from equal inputs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ONE_TO_ONE = frozenset({
    "aten::clone", "aten::detach", "aten::alias", "aten::contiguous", "aten::_to_copy", "aten::lift_fresh",
    "aten::view", "aten::_unsafe_view", "aten::expand",
})  # fmt: skip
"""Operations that return their input if shape and dtype are the same."""
_MOST_COMPARED = 4096
"""Largest number of elements of a constant whose values are compared."""


class ValueNumbering:
    """Numbers of derivations, shared by the forward passes that are compared."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, *derivation: Any) -> int:
        """Number of a derivation, new if it is the first of its kind."""
        return self._known.setdefault(derivation, len(self._known))


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
        written = self._written.get(_storage(value))
        return self._own(value) if written is None else self._of("written", self._own(value), written)

    def numbers(self, values: Any) -> tuple[int, ...]:
        """Numbers of everything in a nested value except None."""
        return tuple(self.number(each) for each in tree_leaves(values) if each is not None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs or {}))
        derivation: tuple[Any, ...] = (str(func), *map(self.number, given))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._drawn[derivation] += 1
            derivation = (*derivation, self._drawn[derivation])
        written = _written_by(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        for place, tensor in enumerate(written):
            self._written[_storage(tensor)] = self._of(*derivation, "writes", place)
        self._record(func, given, out, derivation)
        return out

    def _record(self, func: Any, given: Sequence[Any], out: Any, derivation: tuple[Any, ...]) -> None:
        for place, tensor in enumerate(tree_leaves(out)):
            if not isinstance(tensor, Tensor) or any(tensor is each for each in given):
                continue
            source = given[0] if given else None
            if func._schema.name in _ONE_TO_ONE and isinstance(source, Tensor) and _alike(tensor, source):  # noqa: SLF001  # an operator's only description
                shares = _storage(tensor) == _storage(source)
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


def _written_by(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    found = []
    for place, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # see above
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            found += [each for each in tree_leaves(value) if isinstance(each, Tensor)]
    return found


def _alike(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # fake tensors have no address


def _contents(tensor: Tensor) -> str:
    """Values of a small constant."""
    if type(tensor) is not Tensor or tensor.is_meta or tensor.numel() > _MOST_COMPARED:
        return ""
    with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001  # the read is not part of the forward pass
        return repr(tensor.detach().tolist())
