"""Counter of torch operations: live bytes, bytes moved, matrix products by size; flop formulas."""

import weakref
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count
from torch.utils.weak import WeakIdKeyDictionary

Shape = tuple[int, ...]
_aten = torch.ops.aten


def _grouped(left: Shape, right: Shape, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Flops of a grouped product: a row is multiplied by the matrix of one group, or a group sums over its rows."""
    del out_shape
    if len(left) == len(right) == 3:
        return 2 * left[0] * left[1] * left[2] * right[2]
    if len(right) == 3:
        return 2 * left[0] * left[1] * right[2]
    if len(left) == 3:
        return 2 * left[1] * left[2] * right[1]
    return 2 * left[0] * left[1] * right[1]


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, _widened(key, query), _widened(value, query)))  # type: ignore[no-untyped-call]  # torch's own, without types


def _attention_backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, _widened(key, query), _widened(value, query)))  # type: ignore[no-untyped-call]  # likewise


def _widened(shared: Shape, query: Shape) -> Shape:
    """`shared` with as many heads as `query`; torch 2.11 counts no others."""
    return (*shared[:1], query[1], *shared[2:])


_KNOWN: dict[Any, Any] = {
    _aten._grouped_mm: _grouped,  # noqa: SLF001  # operators are known by these names
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,  # noqa: SLF001  # as above
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,  # noqa: SLF001  # as above
}
FORMULAS: dict[Any, Any] = {operator: count for operator, count in _KNOWN.items() if operator not in flop_registry}
"""Operator to its flops, by shapes, in addition to torch's own; torch 2.11 has none for attention on CPU."""


_PRODUCTS = {_aten.mm: 0, _aten.addmm: 1, _aten.bmm: 0, _aten.baddbmm: 1}
"""Operator to the place of its left matrix."""
_FUSED = _aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001  # operators are known by these names

_COUNTED = frozenset(flop_registry) | frozenset(FORMULAS)


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its hooks have no types
    """Counts operations on real or fake tensors; storages that existed before do not count."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.live = self.peak = 0
        self.moved = 0
        """Bytes read and written by operations other than products, views and allocations."""
        self.moves = 0
        """Operations that moved them."""
        self.matrices: Counter[tuple[int, int, int]] = Counter()
        self.attention: Counter[tuple[int, int, int, int, bool]] = Counter()
        """Heads of all samples, queries, keys, width, whether it is causal."""
        self._known: Any = WeakIdKeyDictionary(ref_type=weakref.ref)  # storage -> whether it is counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = _tensors((args, kwargs))
        for storage in map(_storage, inputs):
            self._known.setdefault(storage, False)
        result = func(*args, **(kwargs or {}))
        outputs = _tensors(result)
        is_new = [self._count(_storage(output)) for output in outputs]
        if func.overloadpacket in _COUNTED:
            self._multiply(func.overloadpacket, args)
            self._attend(func, args, kwargs or {})
        elif inputs and (any(is_new) or func._schema.is_mutable):  # noqa: SLF001  # the only way to ask an operator
            self.moved += size_bytes([*inputs, *outputs])
            self.moves += 1
        return result

    def made(self, tensor: Tensor) -> bool:
        """Whether its storage was allocated inside this mode."""
        return bool(self._known.get(_storage(tensor), False))

    def _count(self, storage: UntypedStorage) -> bool:
        if storage in self._known:
            return False
        self._known[storage] = True
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, partial(self._free, size))
        return True

    def _free(self, size: int) -> None:
        self.live -= size

    def _multiply(self, operator: Any, args: Any) -> None:
        first = _PRODUCTS.get(operator)
        if first is None:
            return
        left, right = args[first], args[first + 1]
        batch = left.shape[0] if left.ndim == 3 else 1
        self.matrices[int(left.shape[-2]), int(left.shape[-1]), int(right.shape[-1])] += int(batch)

    def _attend(self, func: Any, args: Any, kwargs: Any) -> None:
        """Count forward passes only; there are as many backward passes."""
        if func.overloadpacket is not _FUSED:
            return
        query, key = args[:2]
        places = [argument.name for argument in func._schema.arguments]  # noqa: SLF001  # likewise
        is_causal = bool({**dict(zip(places, args, strict=False)), **kwargs}.get("is_causal"))
        heads = int(query.shape[0] * query.shape[1])
        self.attention[heads, int(query.shape[2]), int(key.shape[2]), int(query.shape[3]), is_causal] += 1


def size_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the elements of all tensors; shared storages count twice."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def storage_id(tensor: Tensor) -> int:
    """Id of the storage, equal for its views while it exists."""
    return id(_storage(tensor))


def _storage(tensor: Tensor) -> UntypedStorage:
    return tensor.untyped_storage()


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
