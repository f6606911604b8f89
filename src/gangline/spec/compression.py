"""`[train.compression]` of a line as frozen data."""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.spec.bounds import Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """What is exchanged, how often, and in which form."""

    kind: Literal["none", "fp16", "bf16", "powersgd", "topk", "int8"] = "none"
    """Form of gradients, or of changes of weights, on the wire."""
    rank: Annotated[int, Bound(least=1)] = 2
    """Columns of powersgd's factors."""
    ratio: Annotated[float, Bound(above=0, most=1, words="a share in (0, 1]")] = 0.01
    """Share of entries that topk sends."""
    outer_steps: Annotated[int | None, Bound(least=1)] = None
    """Local steps between synchronisations of local_sgd and diloco, and of a block of a parameter server."""
    outer_lr: Annotated[float | None, Bound(above=0)] = None
    """Learning rate of the outer optimizer of diloco and of a parameter server; local_sgd takes the plain mean."""
    outer_momentum: Annotated[float, Bound(least=0, below=1, words="in [0, 1)", works="0.9 is usual")] = 0.9
    """Nesterov momentum of that optimizer."""
