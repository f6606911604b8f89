"""Muon: momentum, then its nearest orthogonal matrix by Newton-Schulz, with the options of `torch.optim.Muon`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from gangline.optim.plan.costs import MuonSpec, Shape
from gangline.optim.rules.matrix_rule import MatrixRule, MatrixState, Options, Total
from gangline.optim.rules.newton_schulz import newton_schulz, shared_newton_schulz
from gangline.spec.config.matrix_options import AdjustLr, MuonOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Muon(MuonOptions, MatrixRule):
    """The rule with its options."""

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
