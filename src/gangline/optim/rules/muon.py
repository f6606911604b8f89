"""Muon: momentum, then its nearest orthogonal matrix by Newton-Schulz, with the options of `torch.optim.Muon`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.plan.costs import MuonKernel, MuonSpec, Shape
from gangline.optim.rules.matrix_rule import MatrixRule, MatrixState, Options, Total
from gangline.optim.rules.newton_schulz import Coefficients, newton_schulz, shared_newton_schulz

AdjustLr = Literal["original", "match_rms_adamw", "spectral_unclamped"]
ProductDtype = Literal["bfloat16", "float32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Muon(MatrixRule):
    """Options as those of `torch.optim.Muon`; `eps`, `kernel` and `dtype` say where they differ.

    Raises:
        ConfigError: An option is out of its range.
    """

    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: Coefficients = (3.4445, -4.7750, 2.0315)
    eps: float = 0.0
    """Smaller norms count as it. torch has 1e-7: below it, the update shrinks with the gradient."""
    ns_steps: int = 5
    adjust_lr_fn: AdjustLr | None = None
    """Factor of `lr` by the shape of the whole matrix; None: `original`."""
    kernel: MuonKernel = "standard"
    dtype: ProductDtype = "bfloat16"
    """Type of the products; momentum is float32 in both cases, whatever the parameter is."""

    def __post_init__(self) -> None:
        if min(self.lr, self.weight_decay, self.momentum, self.eps) < 0 or len(self.ns_coefficients) != 3:
            raise ConfigError(
                f"lr, weight_decay, momentum and eps of Muon are 0 or more, ns_coefficients are three; found {self}"
            )
        if not 0 < self.ns_steps < 100:
            raise ConfigError(f"ns_steps is from 1 to 99, found {self.ns_steps}")
        for name, known in (("kernel", MuonKernel), ("dtype", ProductDtype), ("adjust_lr_fn", AdjustLr)):
            found = getattr(self, name)
            if found not in get_args(known) and not (name == "adjust_lr_fn" and found is None):
                raise ConfigError(f"{name} of Muon is one of {', '.join(get_args(known))}, found {found!r}")

    @property
    def spec(self) -> MuonSpec:
        return MuonSpec(kernel=self.kernel, steps=self.ns_steps, dtype=self.dtype)

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("kernel", "dtype")}

    def prepare(self, gradient: Tensor, state: MatrixState, options: Options) -> Tensor:
        momentum = state["momentum"]
        gradient = gradient.to(momentum.dtype)
        momentum.lerp_(gradient, 1 - options["momentum"])
        return gradient.lerp(momentum, options["momentum"]) if options["nesterov"] else momentum

    def compute(
        self, batch: Tensor, states: Sequence[MatrixState], options: Options, *, refresh: Sequence[bool]
    ) -> Tensor:  # fmt: skip
        del states, refresh  # its only state is the momentum, which stays where the parameter is
        return newton_schulz(
            batch, coefficients=options["ns_coefficients"], steps=options["ns_steps"], eps=options["eps"],
            kernel=self.kernel, dtype=getattr(torch, self.dtype),
        ).float()  # fmt: skip

    def compute_shared(self, part: Tensor, options: Options, total: Total) -> Tensor:
        return shared_newton_schulz(
            part, coefficients=options["ns_coefficients"], steps=options["ns_steps"], eps=options["eps"],
            kernel=self.kernel, dtype=getattr(torch, self.dtype), total=total,
        ).float()  # fmt: skip

    def apply(self, parameter: Tensor, update: Tensor, options: Options, shape: Shape) -> None:
        parameter.mul_(1 - options["lr"] * options["weight_decay"])
        parameter.add_(update, alpha=-options["lr"] * _lr_factor(options["adjust_lr_fn"], shape))


def _lr_factor(adjust: AdjustLr | None, shape: Shape) -> float:
    """Root mean square or spectral norm of the update, as each convention wants it, whatever the shape."""
    rows, columns = shape
    if adjust == "match_rms_adamw":
        return 0.2 * sqrt(max(rows, columns))
    ratio = sqrt(rows / columns)
    return ratio if adjust == "spectral_unclamped" else max(1.0, ratio)
