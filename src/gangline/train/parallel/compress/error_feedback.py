"""Error feedback: what compression left out of one step's gradients is added to those of the next."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gangline.train.parallel.compress.bucket import Piece

PREFIX = "residual/"


class ErrorFeedback:
    """What is left of each parameter's gradient, by its name; local."""

    def __init__(self) -> None:
        self._left: dict[str, Tensor] = {}

    def add_to(self, piece: Piece) -> None:
        """Put what was left of this parameter into its gradient."""
        left = self._left.get(piece.name)
        if left is not None and left.numel() == piece.grad.numel():
            piece.grad.add_(left.view_as(piece.grad).to(piece.grad.device))

    def keep(self, piece: Piece, left: Tensor) -> None:
        """Remember what was not sent; what is not finite is forgotten, or one bad step would spoil all later ones."""
        self._left[piece.name] = torch.nan_to_num(left, nan=0.0, posinf=0.0, neginf=0.0)

    def state(self) -> dict[str, Tensor]:
        return {PREFIX + name: left for name, left in self._left.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._left = {
            name.removeprefix(PREFIX): left.clone() for name, left in state.items() if name.startswith(PREFIX)
        }
