"""Attention of one block of queries over one block of keys, with what is needed to add blocks up later.

Tensors are (batch, heads, positions, width). The log-sum-exp of a query's scores says how much of its softmax a block
holds. Backward takes the output and log-sum-exp over *all* keys: a block's gradients depend on the others through these
two alone. torch's flash operators do both where they take the tensors, plain matrix products elsewhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gangline.train.parallel.flash import flash_attention, flash_attention_backward

_HALF = (torch.float16, torch.bfloat16)
_FLASH_WIDTH = 256
"""Largest width of a head that flash attention on CUDA takes."""


@dataclass(frozen=True, slots=True)
class Given:
    """Key and value may have fewer heads than the query, each for as many of its heads in a row."""

    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Attended:
    """Of some queries over some keys, or all."""

    out: Tensor
    log_sum: Tensor
    """Log-sum-exp of the scores: (batch, heads, positions), float32 or wider."""


@dataclass(frozen=True, slots=True)
class How:
    causal: bool
    """Query i sees keys 0 to i of its block."""
    scale: float
    """Of scores, before the softmax."""


def attend(given: Given, how: How) -> Attended:
    """Queries over one block of keys."""
    wide = _widen(given)
    if not _takes_flash(wide):
        return _by_products(wide, how)
    return Attended(*flash_attention(wide.query, wide.key, wide.value, causal=how.causal, scale=how.scale))


def attend_backward(grad: Tensor, given: Given, whole: Attended, how: How) -> Given:
    """Gradients of one block of `attend`; `whole` is of the same queries over all keys."""
    wide = _widen(given)
    if _takes_flash(wide):
        tensors = (wide.query, wide.key, wide.value), whole.out, whole.log_sum
        found = Given(*flash_attention_backward(grad, *tensors, causal=how.causal, scale=how.scale))
    else:
        found = _products_backward(grad, wide, whole, how)
    groups = given.query.shape[1] // given.key.shape[1]
    return found if groups == 1 else Given(found.query, _narrow(found.key, groups), _narrow(found.value, groups))


def _takes_flash(given: Given) -> bool:
    query = given.query
    if query.shape[-1] != given.value.shape[-1]:
        return False
    return query.device.type == "cpu" or (query.dtype in _HALF and query.shape[-1] <= _FLASH_WIDTH)


def _by_products(given: Given, how: How) -> Attended:
    scores = _scores(given, how)
    log_sum = scores.logsumexp(-1)
    shares = (scores - log_sum[..., None]).exp()
    return Attended((shares @ given.value.to(shares.dtype)).to(given.query.dtype), log_sum)


def _products_backward(grad: Tensor, given: Given, whole: Attended, how: How) -> Given:
    scores = _scores(given, how)
    shares = (scores - whole.log_sum[..., None]).exp()
    grad, out, query, key, value = (
        each.to(scores.dtype) for each in (grad, whole.out, given.query, given.key, given.value)
    )
    pulls = shares * (grad @ value.mT - (grad * out).sum(-1, keepdim=True)) * how.scale
    dtype = given.query.dtype
    return Given((pulls @ key).to(dtype), (pulls.mT @ query).to(dtype), (shares.mT @ grad).to(dtype))


def _scores(given: Given, how: How) -> Tensor:
    dtype = torch.promote_types(given.query.dtype, torch.float32)
    scores = given.query.to(dtype) @ given.key.to(dtype).mT * how.scale
    if how.causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores


def _widen(given: Given) -> Given:
    """As many heads of keys and values as there are of queries."""
    groups = given.query.shape[1] // given.key.shape[1]
    if groups == 1:
        return given
    return Given(given.query, *(each.repeat_interleave(groups, dim=1) for each in (given.key, given.value)))


def _narrow(grad: Tensor, groups: int) -> Tensor:
    """Heads that share a key add up."""
    return torch.stack(grad.chunk(grad.shape[1] // groups, 1)).sum(2).movedim(0, 1)
