"""Floating-point operations of what torch has no formula for: products of rows in groups, attention on CPU."""

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Shape = tuple[int, ...]
_aten = torch.ops.aten


def _grouped(left: Shape, right: Shape, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Every row meets one group's matrix, however rows are dealt to groups; or every group sums over its own rows."""
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
    """With as many heads as `query`, which shares them; torch 2.11 counts no others."""
    return (*shared[:1], query[1], *shared[2:])


_KNOWN: dict[Any, Any] = {
    _aten._grouped_mm: _grouped,  # noqa: SLF001  # operators are known by these names
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,  # noqa: SLF001  # as above
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,  # noqa: SLF001  # as above
}
FORMULAS: dict[Any, Any] = {operator: count for operator, count in _KNOWN.items() if operator not in flop_registry}
"""Operator to its operations, by shapes; in addition to torch's own. torch 2.11 has none for attention on CPU."""
