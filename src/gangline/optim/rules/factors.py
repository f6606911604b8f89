"""Rules with left and right factors of a matrix, G G^T and G^T G averaged over steps, and their eigenvectors."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from gangline.errors import TrainingError
from gangline.optim.rules.matrix_rule import MatrixRule, MatrixState, Options
from gangline.optim.rules.precision import ieee_products

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
    for side, each in zip(SIDES, (gradient, gradient.mT), strict=True):
        if (factor := state.get(f"factor_{side}")) is not None:
            factor.addmm_(each, each.mT, beta=beta, alpha=1 - beta)


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
