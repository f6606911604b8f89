"""Shampoo: a gradient between the inverse fourth roots of its two factors, G G^T and G^T G averaged over steps.

Source: Gupta, Koren, Singer, "Shampoo: Preconditioned Stochastic Tensor Optimization" (2018), with exponential
averages, corrected for their start at zero, in place of sums.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gangline.errors import TrainingError
from gangline.optim.plan.costs import ShampooSpec
from gangline.optim.rules.matrix_rule import MatrixRule, MatrixState, Options, ieee_products
from gangline.spec.config.matrix_options import ShampooOptions

SIDES = ("left", "right")
_NotConverged: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # documented, not exported


class FactorRule(MatrixRule):
    """A rule that updates the matrices of a batch one by one."""

    def compute(
        self, batch: Tensor, states: Sequence[MatrixState], options: Options, *, refresh: Sequence[bool]
    ) -> Tensor:
        with ieee_products():
            updates = [self.update(*each, options) for each in zip(batch, states, refresh, strict=True)]
        return torch.stack(updates).float()

    @abstractmethod
    def update(self, gradient: Tensor, state: MatrixState, is_due: bool, options: Options) -> Tensor:
        """Update of one matrix; `is_due`: this is the step of its phase. Arguments as of `compute`."""
        ...


def accumulate_factors(state: MatrixState, gradient: Tensor, beta: float) -> None:
    """Let each factor of `state` be `beta` of itself and `1 - beta` of that of `gradient`."""
    for side, tensor in zip(SIDES, (gradient, gradient.mT), strict=True):
        if (factor := state.get(f"factor_{side}")) is not None:
            factor.addmm_(tensor, tensor.mT, beta=beta, alpha=1 - beta)


def eigenvectors(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and their vectors as columns.

    Raises:
        TrainingError: They do not converge, in float64 neither.
    """
    try:
        values, vectors = torch.linalg.eigh(factor)
    except _NotConverged:  # some factors need more digits
        try:
            values, vectors = torch.linalg.eigh(factor.double())
        except _NotConverged as error:
            raise TrainingError(
                f"a factor of {len(factor)} rows has no eigenvectors, largest element {float(factor.abs().max()):.3g}; "
                "gradients below 1e18 are needed, clip or scale them"
            ) from error
    return values.to(factor.dtype), vectors.to(factor.dtype)


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
