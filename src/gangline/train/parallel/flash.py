"""torch's flash attention with its log-sum-exp, by device; the one place that knows these operators, which have no
public name. Nothing is dropped out, so nothing is drawn."""

from typing import Any

import torch
from torch import Tensor

_ATEN: Any = torch.ops.aten
_ON_CPU, _ON_CUDA = "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"


def flash_attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Output, and log-sum-exp of the scores as (batch, heads, positions)."""
    operator = getattr(_ATEN, _ON_CPU if query.device.type == "cpu" else _ON_CUDA)
    out, log_sum, *_ = operator(query, key, value, 0.0, causal, scale=scale)
    return out, log_sum


def flash_attention_backward(
    grad: Tensor, given: tuple[Tensor, Tensor, Tensor], out: Tensor, log_sum: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of `given`: query, key and value; output and log-sum-exp may be those over more keys than these."""
    query, key, _ = given
    tensors = (grad, *given, out, log_sum)
    if query.device.type == "cpu":
        found = getattr(_ATEN, f"{_ON_CPU}_backward")(*tensors, 0.0, causal, scale=scale)
    else:
        ragged, drawn = (None, None, query.shape[2], key.shape[2]), torch.empty((), dtype=torch.int64)
        backward = getattr(_ATEN, f"{_ON_CUDA}_backward")
        found = backward(*tensors, *ragged, 0.0, causal, drawn, drawn, scale=scale)
    of_query, of_key, of_value = found
    return of_query, of_key, of_value
