"""Shampoo: a gradient between the inverse fourth roots of its two averaged factors.

Source: Gupta, Koren, Singer, "Shampoo: Preconditioned Stochastic Tensor Optimization" (2018), with exponential
averages, corrected for their start at zero, in place of sums.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.plan.costs import ShampooSpec
from gangline.optim.rules.factors import SIDES, FactorRule, accumulate_factors, eigenvectors
from gangline.optim.rules.matrix_rule import MatrixState, Options


@dataclass(frozen=True, kw_only=True, slots=True)
class Shampoo(FactorRule):
    """Averages of gradients and factors, roots refreshed now and then.

    Raises:
        ConfigError: An option is out of its range.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the gradient and of the factors."""
    eps: float = 1e-4
    """Added to the eigenvalues of a factor, as a share of the largest: below 1e-7 it is lost in those of float32."""
    weight_decay: float = 0.01
    refresh_every: int = 10
    """Steps from one computation of the roots to the next; the first step has one of its own."""

    def __post_init__(self) -> None:
        if min(self.lr, self.weight_decay) < 0 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"lr and weight_decay of Shampoo are 0 or more, betas from 0 to below 1; found {self}")
        if self.eps <= 0 or self.refresh_every < 1:
            raise ConfigError(f"eps of Shampoo is above 0, refresh_every 1 or more; found {self}")

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
