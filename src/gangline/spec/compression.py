"""`[train.compression]` of a line as frozen data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """What is exchanged, how often, and in which form."""

    kind: Literal["none", "fp16", "bf16", "powersgd", "topk", "int8"] = "none"
    """Form of gradients, or of changes of weights, on the wire."""
    rank: int = 2
    """Columns of powersgd's factors."""
    ratio: float = 0.01
    """Share of entries that topk sends."""
    outer_steps: int | None = None
    """Local steps between synchronisations of local_sgd and diloco, and of a block of a parameter server."""
    outer_lr: float | None = None
    """Learning rate of the outer optimizer of diloco and of a parameter server; local_sgd takes the plain mean."""
    outer_momentum: float = 0.9
    """Nesterov momentum of that optimizer."""
