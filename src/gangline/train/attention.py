"""Attention that also works over a sequence cut across ranks; `parallel.context_parallel` decides how it is cut.

    from gangline.train.attention import attention

    mixed = attention(query, key, value, is_causal=True)     # (batch, heads, sequence, width), as torch's own

Without context parallelism it is `torch.nn.functional.scaled_dot_product_attention`. There is one
exchange for the process, not one for each thread, because recomputation in a backward pass runs on other threads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gangline.errors import ConfigError


class Exchange(Protocol):
    """Attention of ranks that hold parts of one sequence; its methods are collective."""

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, scale: float | None, dropout_p: float
    ) -> Tensor:
        """Attention of this rank's queries over the keys of all, `(batch, heads, sequence, width)`."""
        ...

    def sum(self, part: Tensor) -> Tensor:
        """Sum of `part` over the peers of a sequence; has no gradient."""
        ...


QueryKeyValue = tuple[Tensor, Tensor, Tensor]
_current: list[Exchange] = []
"""The exchange of this process, or none."""
num_calls = 0
"""Attention calls over a cut sequence since the start of the process."""


def use(exchange: Exchange | None) -> None:
    """Set the exchange of this process; None: attention is local."""
    _current[:] = [exchange] if exchange is not None else []


@contextmanager
def alone() -> Iterator[None]:
    """Inside the block attention is local under any plan, without communication."""
    before = [*_current]
    use(None)
    try:
        yield
    finally:
        _current[:] = before


def attention(  # noqa: PLR0917  # torch's own arguments in torch's own order
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Scaled dot product attention; `(batch, heads, sequence, width)`, with torch's own arguments.

    If the sequence is cut, `sequence` is the length of this rank's part, and the call is collective.

    Raises:
        ConfigError: The sequence is cut, and its exchange does not support these arguments.
    """
    if not _current:
        out: Tensor = scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return out
    inputs = (query, key, value)
    mixed: Tensor = _over_ranks(inputs, attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    return mixed


def sum_over_sequence(part: Tensor) -> Tensor:
    """Sum over the ranks that hold parts of the same sequences; without gradient. Collective."""
    return _current[0].sum(part) if _current else part.detach()


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _over_ranks(
    inputs: QueryKeyValue, attn_mask: Tensor | None, *, dropout_p: float, is_causal: bool, scale: float | None
) -> Tensor:
    global num_calls  # noqa: PLW0603  # one counter a process, as there is one exchange
    num_calls += 1
    if attn_mask is not None:
        raise ConfigError(
            "attention over a sequence that is cut (cp > 1) supports no attn_mask: its columns are spread over ranks; "
            "use is_causal=True, weights of 0 in the loss for padding, or cp = 1, which supports any mask"
        )
    shapes = [tuple(tensor.shape) for tensor in inputs]
    if len(shapes[0]) != 4 or shapes[0][2] != shapes[1][2]:
        raise ConfigError(
            "attention over a sequence that is cut (cp > 1) wanted queries and keys of one length as (batch, heads, "
            f"sequence, width), found {shapes[0]} and {shapes[1]}; cp = 1 supports any"
        )
    with torch._C.DisableTorchFunction():  # noqa: SLF001  # a mode that catches torch's own attention has led here
        return _current[0].attend(*inputs, is_causal=is_causal, scale=scale, dropout_p=dropout_p)
