"""Attention of one block of queries over one block of keys, with the log-sum-exp that combines blocks.

Uses torch's flash attention operators where they are available; these have no public name and are used only here.
"""

from dataclasses import dataclass
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
    """Gradients of query, key and value; output and log-sum-exp may cover more keys than these."""
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


_HALF = (torch.float16, torch.bfloat16)
_FLASH_WIDTH = 256
"""Largest head width of flash attention on CUDA."""


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """Key and value may have fewer heads than the query; each is shared by consecutive heads of the query."""

    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class AttentionOutput:
    """Output and log-sum-exp of queries over some or all keys."""

    out: Tensor
    log_sum: Tensor
    """Log-sum-exp of the scores: (batch, heads, positions), float32 or wider."""


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Mask and scale of attention."""

    causal: bool
    """Query i sees keys 0 to i of its block."""
    scale: float
    """Factor of scores, before the softmax."""


def attend(given: AttentionInputs, how: AttentionOptions) -> AttentionOutput:
    """Attention of queries over one block of keys."""
    wide = _widen(given)
    if not _takes_flash(wide):
        return _by_products(wide, how)
    return AttentionOutput(*flash_attention(wide.query, wide.key, wide.value, causal=how.causal, scale=how.scale))


def attend_backward(
    grad: Tensor, given: AttentionInputs, whole: AttentionOutput, how: AttentionOptions
) -> AttentionInputs:
    """Gradients of one block of `attend`; `whole` is the output of the same queries over all keys."""
    wide = _widen(given)
    if _takes_flash(wide):
        tensors = (wide.query, wide.key, wide.value), whole.out, whole.log_sum
        found = AttentionInputs(*flash_attention_backward(grad, *tensors, causal=how.causal, scale=how.scale))
    else:
        found = _products_backward(grad, wide, whole, how)
    groups = given.query.shape[1] // given.key.shape[1]
    return (
        found if groups == 1 else AttentionInputs(found.query, _narrow(found.key, groups), _narrow(found.value, groups))
    )


def _takes_flash(given: AttentionInputs) -> bool:
    query = given.query
    if query.shape[-1] != given.value.shape[-1]:
        return False
    return query.device.type == "cpu" or (query.dtype in _HALF and query.shape[-1] <= _FLASH_WIDTH)


def _by_products(given: AttentionInputs, how: AttentionOptions) -> AttentionOutput:
    scores = _scores(given, how)
    log_sum = scores.logsumexp(-1)
    shares = (scores - log_sum[..., None]).exp()
    return AttentionOutput((shares @ given.value.to(shares.dtype)).to(given.query.dtype), log_sum)


def _products_backward(
    grad: Tensor, given: AttentionInputs, whole: AttentionOutput, how: AttentionOptions
) -> AttentionInputs:
    scores = _scores(given, how)
    shares = (scores - whole.log_sum[..., None]).exp()
    grad, out, query, key, value = (
        each.to(scores.dtype) for each in (grad, whole.out, given.query, given.key, given.value)
    )
    pulls = shares * (grad @ value.mT - (grad * out).sum(-1, keepdim=True)) * how.scale
    dtype = given.query.dtype
    return AttentionInputs((pulls @ key).to(dtype), (pulls.mT @ query).to(dtype), (shares.mT @ grad).to(dtype))


def _scores(given: AttentionInputs, how: AttentionOptions) -> Tensor:
    dtype = torch.promote_types(given.query.dtype, torch.float32)
    scores = given.query.to(dtype) @ given.key.to(dtype).mT * how.scale
    if how.causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores


def _widen(given: AttentionInputs) -> AttentionInputs:
    """Repeat keys and values to the number of heads of the query."""
    groups = given.query.shape[1] // given.key.shape[1]
    if groups == 1:
        return given
    return AttentionInputs(given.query, *(each.repeat_interleave(groups, dim=1) for each in (given.key, given.value)))


def _narrow(grad: Tensor, groups: int) -> Tensor:
    """Sum the gradients of heads that share a key."""
    return torch.stack(grad.chunk(grad.shape[1] // groups, 1)).sum(2).movedim(0, 1)
