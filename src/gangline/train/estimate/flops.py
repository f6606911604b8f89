"""Floating-point operations of what torch has no formula for: products of rows in groups, one matrix a group."""

from typing import Any

import torch

Shape = tuple[int, ...]


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


FORMULAS: dict[Any, Any] = {torch.ops.aten._grouped_mm: _grouped}  # noqa: SLF001  # operators are known by these names
"""Operator to its operations, by shapes; in addition to torch's own."""
