"""Parameters that one model has fused and another split: the names of both, and which rows are whose."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedParameter:
    """Names of one fused parameter and of its parts, for a checkpoint of either model that the other one opens."""

    match: str
    """Name of the fused one, `layers.*.wqkv.*`: `*` is any text, dots included, and the same text in `parts`."""
    parts: tuple[str, ...]
    """Names of the others, in the order of the split rule; of `stack` one, with `{}` for the number."""
    split: Literal["gate_up", "gate_up_interleaved", "qkv", "qkv_by_group", "stack"]
    """Split rule of `[[optimizer.route]]`: which rows are whose; a bias has the same."""
    heads: int = 0
    """Heads of queries; only `qkv` and `qkv_by_group` have this and the two below."""
    kv_heads: int = 0
    """Heads of keys, and of values."""
    head_dim: int = 0
    """Rows of one head."""
