"""Ring attention: queries stay, keys and values move around the ring; no rank holds those of the whole sequence.

Attention of one block has a log-sum-exp, by which blocks are combined. It is by torch's flash attention operators where
they are available; these have no public name and are used only here.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from gangline.errors import ConfigError
from gangline.train.account.clock import WaitMeter

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
        tensor.to(scores.dtype) for tensor in (grad, whole.out, given.query, given.key, given.value)
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
    return AttentionInputs(
        given.query, *(tensor.repeat_interleave(groups, dim=1) for tensor in (given.key, given.value))
    )


def _narrow(grad: Tensor, groups: int) -> Tensor:
    """Sum the gradients of heads that share a key."""
    return torch.stack(grad.chunk(grad.shape[1] // groups, 1)).sum(2).movedim(0, 1)


_ALL = slice(None)
Pair = tuple[Tensor, Tensor]
"""Keys and values, or their gradients."""


@dataclass(frozen=True, slots=True)
class BlockVisibility:
    """Which of a rank's queries see which of the keys that it received."""

    queries: slice
    keys: slice
    causal: bool

    @property
    def rows(self) -> tuple[slice, slice, slice]:
        """Index of tensors with a row for each query."""
        return (_ALL, _ALL, self.queries)

    @property
    def columns(self) -> tuple[slice, slice, slice]:
        """Index of tensors with a row for each key."""
        return (_ALL, _ALL, self.keys)

    def of(self, query: Tensor, key: Tensor, value: Tensor) -> AttentionInputs:
        """The visible part of each tensor, (samples, heads, positions, width)."""
        return AttentionInputs(query[self.rows], key[self.columns], value[self.columns])


def block_visibility(rank: int, source: int, half: int, *, causal: bool) -> BlockVisibility:
    """Visibility of the keys of `source` for `rank`; each rank holds two pieces of `half` positions."""
    if not causal or rank == source:
        return BlockVisibility(_ALL, _ALL, causal)
    if source < rank:
        return BlockVisibility(_ALL, slice(None, half), causal=False)  # their late piece comes after both of ours
    return BlockVisibility(slice(half, None), _ALL, causal=False)  # their early piece comes after our early one


class RingAttention:
    """Peers of one sequence, in a ring; an `attention.Exchange`."""

    def __init__(self, group: ProcessGroup, waits: WaitMeter) -> None:
        self._group, self._waits = group, waits
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, scale: float | None, dropout_p: float
    ) -> Tensor:
        if dropout_p:
            raise ConfigError(
                f"ring attention does not support dropout, found dropout_p={dropout_p}; "
                'dropout_p=0 works, and so does train.mesh.context = "ulysses"'
            )
        if is_causal and query.shape[2] % 2:
            raise ConfigError(
                f"causal ring attention wants an early and a late half on each rank, found {query.shape[2]} positions; "
                "an even number works"
            )
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        run: Any = _RingAttention.apply
        out: Tensor = run(query, key, value, self, AttentionOptions(is_causal, scale))
        return out

    def sum(self, part: Tensor) -> Tensor:
        total = part.detach().clone()
        dist.all_reduce(total, group=self._group)
        return total

    def block(self, turn: int, length: int, how: AttentionOptions) -> BlockVisibility:
        """Visibility of the keys that this rank has in a turn, with `length` positions on each rank."""
        return block_visibility(self.rank, (self.rank - turn) % self.size, length // 2, causal=how.causal)

    def rotate(self, tensors: Pair) -> "_Transfer":
        """Start to send `tensors` to the next rank and to receive those of the previous one."""
        sent = (tensors[0].contiguous(), tensors[1].contiguous())
        transfer = _Transfer(self._waits, (torch.empty_like(sent[0]), torch.empty_like(sent[1])), [], sent)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        calls = [dist.P2POp(dist.isend, tensor, group=self._group, group_peer=after) for tensor in sent]
        calls += [dist.P2POp(dist.irecv, tensor, group=self._group, group_peer=before) for tensor in transfer.incoming]
        transfer.work.extend(dist.batch_isend_irecv(calls))
        return transfer


@dataclass(frozen=True, slots=True)
class _Transfer:
    waits: WaitMeter
    incoming: Pair
    work: list[Any]
    sent: Pair
    """Kept until they are sent."""

    def wait(self) -> Pair:
        with self.waits.timed():
            for each in self.work:
                each.wait()
        return self.incoming


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        """Arguments: query, key, value, ring, options."""
        query, key, value, ring, how = given
        whole = _forward(AttentionInputs(query, key, value), ring, how)
        ctx.save_for_backward(query, key, value, whole.out, whole.log_sum)
        ctx.ring, ctx.how = ring, how
        return whole.out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, log_sum = ctx.saved_tensors
        found = _backward(
            grads[0], AttentionInputs(query, key, value), AttentionOutput(out, log_sum), ctx.ring, ctx.how
        )
        return found.query, found.key, found.value, None, None


def _forward(given: AttentionInputs, ring: RingAttention, how: AttentionOptions) -> AttentionOutput:
    query, keys = given.query, (given.key, given.value)
    sums = _Sums(query)
    for turn in range(ring.size):
        transfer = ring.rotate(keys) if turn < ring.size - 1 else None
        block = ring.block(turn, query.shape[2], how)
        sums.add(block, attend(block.of(query, *keys), AttentionOptions(block.causal, how.scale)))
        if transfer is not None:
            keys = transfer.wait()
    return sums.whole()


def _backward(
    grad: Tensor, given: AttentionInputs, whole: AttentionOutput, ring: RingAttention, how: AttentionOptions
) -> AttentionInputs:
    """Gradients of keys and values follow them one turn later, and one turn further, back to their rank."""
    query, keys = given.query, (given.key, given.value)
    of_query, *zeros = (_wide_zeros(tensor) for tensor in (query, *keys))
    of_keys, incoming = (zeros[0], zeros[1]), None
    for turn in range(ring.size):
        transfer = ring.rotate(keys) if turn < ring.size - 1 else None
        block = ring.block(turn, query.shape[2], how)
        seen = AttentionOutput(whole.out[block.rows], whole.log_sum[block.rows])
        part = attend_backward(
            grad[block.rows], block.of(query, *keys), seen, AttentionOptions(block.causal, how.scale)
        )
        of_query[block.rows] += part.query
        if incoming is not None:
            of_keys = incoming.wait()
        of_keys[0][block.columns] += part.key
        of_keys[1][block.columns] += part.value
        incoming = ring.rotate(of_keys)
        if transfer is not None:
            keys = transfer.wait()
    assert incoming is not None, "a ring has ranks"
    of_keys = incoming.wait()
    return AttentionInputs(of_query.to(query.dtype), of_keys[0].to(given.key.dtype), of_keys[1].to(given.value.dtype))


class _Sums:
    """Sum of the outputs over the blocks so far, each weighted by its share of the softmax, in float32 or wider."""

    def __init__(self, query: Tensor) -> None:
        self._dtype = query.dtype
        self._out: Tensor | None = None
        self._log_sum = torch.empty(0)

    def add(self, block: BlockVisibility, part: AttentionOutput) -> None:
        if self._out is None:  # the own block, which every query sees
            self._out = part.out.to(torch.promote_types(self._dtype, torch.float32), copy=True)
            self._log_sum = part.log_sum.clone()
            return
        before = self._log_sum[block.rows]
        after = torch.logaddexp(before, part.log_sum)
        old_share, new_share = (before - after).exp()[..., None], (part.log_sum - after).exp()[..., None]
        self._out[block.rows] = self._out[block.rows] * old_share + part.out * new_share
        self._log_sum[block.rows] = after

    def whole(self) -> AttentionOutput:
        assert self._out is not None, "every query sees its own block"
        return AttentionOutput(self._out.to(self._dtype), self._log_sum)


def _wide_zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
