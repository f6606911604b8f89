"""Shampoo: a gradient between the inverse fourth roots of its two averaged factors.

Source: Gupta, Koren, Singer, "Shampoo: Preconditioned Stochastic Tensor Optimization" (2018), with exponential
averages, corrected for their start at zero, in place of sums.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gangline.optim.plan.costs import ShampooSpec
from gangline.optim.rules.factors import SIDES, FactorRule, accumulate_factors, eigenvectors
from gangline.optim.rules.matrix_rule import MatrixState, Options
from gangline.spec.config.matrix_options import ShampooOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Shampoo(ShampooOptions, FactorRule):
    """The rule with its options."""

    @property
    def spec(self) -> ShampooSpec:
        return ShampooSpec(refresh_every=self.refresh_every)

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "refresh_every"}

    def update(self, gradient: Tensor, state: MatrixState, is_due: bool, options: Options) -> Tensor:
        gradient = gradient.to(state["exp_avg"].dtype)
        step = int(state["step"].add_(1))
        beta1, beta2 = (float(each) for each in options["betas"])
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        accumulate_factors(state, gradient, beta2)
        if is_due or step == 1:
            for side in SIDES:
                factor = state[f"factor_{side}"] / (1 - beta2**step)
                state[f"root_{side}"].copy_(_inverse_fourth_root(factor, options["eps"]))
        return state["root_left"] @ (state["exp_avg"] / (1 - beta1**step)) @ state["root_right"]


def _inverse_fourth_root(factor: Tensor, eps: float) -> Tensor:
    """Inverse fourth root of a factor plus `eps` of its largest eigenvalue; zero for a zero factor."""
    values, vectors = eigenvectors(factor)
    largest = values[-1].clamp(min=0)
    scaled = (values / largest.clamp(min=torch.finfo(values.dtype).tiny)).clamp(min=0) + eps
    root: Tensor = vectors * scaled.pow(-0.25) @ vectors.mT
    return root.mul_(torch.where(largest > 0, largest, torch.inf).pow(-0.25))
