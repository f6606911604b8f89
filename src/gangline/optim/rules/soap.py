"""SOAP: Adam in the eigenbasis of Shampoo's factors.

Source: Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam" (2024), algorithm 3. As in its authors' code,
the first step makes a basis and no update, so that no gradient is seen in a basis that it made itself; weight decay
comes before the update here.
"""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from gangline.optim.plan.costs import SoapSpec
from gangline.optim.rules.matrix_rule import MatrixState, Options
from gangline.optim.rules.shampoo import SIDES, FactorRule, accumulate_factors, eigenvectors
from gangline.spec.config.matrix_options import SoapOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Soap(SoapOptions, FactorRule):
    """The rule with its options."""

    @property
    def spec(self) -> SoapSpec:
        return SoapSpec(refresh_every=self.refresh_every, largest_side=self.largest_side)

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("refresh_every", "largest_side")}

    def update(self, gradient: Tensor, state: MatrixState, is_due: bool, options: Options) -> Tensor:
        gradient = gradient.to(state["exp_avg"].dtype)
        earlier = int(state["step"])
        state["step"].add_(1)
        update = _adam(gradient, state, earlier, options) if earlier else torch.zeros_like(gradient)
        accumulate_factors(state, gradient, options["shampoo_beta"])
        if not earlier:
            for side in SIDES:
                if f"basis_{side}" in state:
                    _, vectors = eigenvectors(state[f"factor_{side}"])
                    state[f"basis_{side}"].copy_(vectors.flip(1))
        elif is_due:
            _correct_bases(state)
        return update


def _adam(gradient: Tensor, state: MatrixState, step: int, options: Options) -> Tensor:
    beta1, beta2 = options["betas"]
    seen = _into_bases(gradient, state)
    state["exp_avg"].lerp_(seen, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(seen, seen, value=1 - beta2)
    scale = sqrt(1 - beta2**step) / (1 - beta1**step)
    return _out_of_bases(scale * state["exp_avg"] / (state["exp_avg_sq"].sqrt() + options["eps"]), state)


def _correct_bases(state: MatrixState) -> None:
    """One step of orthogonal iteration; the moments follow their bases."""
    average = _out_of_bases(state["exp_avg"], state)
    for dim, side in enumerate(SIDES):
        if (basis := state.get(f"basis_{side}")) is not None:
            product = state[f"factor_{side}"] @ basis
            order = (basis * product).sum(0).argsort(descending=True, stable=True)
            basis.copy_(torch.linalg.qr(product[:, order]).Q)
            state["exp_avg_sq"].copy_(state["exp_avg_sq"].index_select(dim, order))
    state["exp_avg"].copy_(_into_bases(average, state))


def _into_bases(matrix: Tensor, state: MatrixState) -> Tensor:
    tensor, right = (state.get(f"basis_{side}") for side in SIDES)
    matrix = matrix if tensor is None else tensor.mT @ matrix
    return matrix if right is None else matrix @ right


def _out_of_bases(matrix: Tensor, state: MatrixState) -> Tensor:
    tensor, right = (state.get(f"basis_{side}") for side in SIDES)
    matrix = matrix if tensor is None else tensor @ matrix
    return matrix if right is None else matrix @ right.mT
