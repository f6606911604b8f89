"""Attention that knows whether its sequence is cut over ranks; what each rank holds is decided in `parallel.context`.

    from gangline.train.attention import attention

    mixed = attention(query, key, value, is_causal=True)     # (batch, heads, sequence, width), as torch's own

Without context parallelism it is `torch.nn.functional.scaled_dot_product_attention`. The exchange is one a process, not
one a thread, for what is recomputed in a backward pass runs on other threads than what was computed first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gangline.errors import ConfigError


class Exchange(Protocol):
    """How ranks that hold parts of one sequence attend over all of it; they make the same calls in the same order."""

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, scale: float | None, dropout_p: float
    ) -> Tensor:
        """Attention of this rank's queries over the keys of all, `(batch, heads, sequence, width)`."""
        ...

    def sum(self, part: Tensor) -> Tensor:
        """Sum of `part` over the peers of a sequence; has no gradient."""
        ...


Given = tuple[Tensor, Tensor, Tensor]
"""Query, key, value."""
_current: list[Exchange] = []
"""At most one: what context-parallel ranks of this process use."""
num_calls = 0
"""Attentions over a cut sequence since the process began."""


def use(exchange: Exchange | None) -> None:
    """From now on attention of this process goes over `exchange`; None: it is local."""
    _current[:] = [exchange] if exchange is not None else []


@contextmanager
def alone() -> Iterator[None]:
    """Inside, attention is local whatever the plan: nobody is asked, nobody is waited for."""
    kept = [*_current]
    use(None)
    try:
        yield
    finally:
        _current[:] = kept


def attention(  # noqa: PLR0917  # torch's own arguments in torch's own order
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Scaled dot product attention; `(batch, heads, sequence, width)`, with torch's own arguments.

    Where the sequence is cut over ranks, `sequence` is this rank's part, and all peers must call.

    Raises:
        ConfigError: The sequence is cut and the call is one that its exchange does not carry out.
    """
    if not _current:
        out: Tensor = scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return out
    given = (query, key, value)
    mixed: Tensor = _over_ranks(given, attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    return mixed


def sum_over_sequence(part: Tensor) -> Tensor:
    """Sum over the ranks that hold parts of the same sequences; without gradient. All peers must call."""
    return _current[0].sum(part) if _current else part.detach()


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _over_ranks(
    given: Given, attn_mask: Tensor | None, *, dropout_p: float, is_causal: bool, scale: float | None
) -> Tensor:
    global num_calls  # noqa: PLW0603  # one counter a process, as there is one exchange
    num_calls += 1
    _check(given, attn_mask)
    with torch._C.DisableTorchFunction():  # noqa: SLF001  # a mode that catches torch's own attention has led here
        return _current[0].attend(*given, is_causal=is_causal, scale=scale, dropout_p=dropout_p)


def _check(given: Given, attn_mask: Tensor | None) -> None:
    if attn_mask is not None:
        raise ConfigError(
            "attention over a sequence that is cut (cp > 1) takes no attn_mask, for its columns are spread over ranks; "
            "is_causal=True works, weights of 0 in the loss leave padding out, cp = 1 takes any mask"
        )
    shapes = [tuple(each.shape) for each in given]
    if len(shapes[0]) != 4 or shapes[0][2] != shapes[1][2]:
        raise ConfigError(
            "attention over a sequence that is cut (cp > 1) wants queries and keys of one length as (batch, heads, "
            f"sequence, width), found {shapes[0]} and {shapes[1]}; cp = 1 takes any"
        )
