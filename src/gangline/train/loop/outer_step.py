"""Outer steps: parts of a run that train apart exchange weights every some steps. Which ones a plan has."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.parallel.local_sgd import make_outer_step
from gangline.train.parameters.worker import WorkerStep
from gangline.train.runtime.context import RankContext


class OuterStep(Protocol):
    """What the engine calls; all ranks of a gang make the same calls."""

    def agree(self, norm: float, *, loss: float, weight: float, device: torch.device) -> float:
        """Norm of the gradients of a step, equal on all ranks; called with its loss and weight. Collective."""
        ...

    def begin(self, progress: TrainingProgress) -> bool:
        """Called once, after a resume and before the first step; as `advance`."""
        ...

    def step(self, *, due: bool) -> None:
        """Exchange weights after a step; not `due`: only a save or a stop asks for it. Collective."""
        ...

    def advance(self, progress: TrainingProgress) -> bool:
        """Move `progress` to the samples that come next; False: this gang was asked to stop. Collective."""
        ...

    def close(self) -> None:
        """Called at the end of a training."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """State that checkpoints hold, equal on all ranks."""
        ...

    def own_tensors(self) -> Mapping[str, Tensor]:
        """State that checkpoints hold, of this rank alone."""
        ...

    def restore(self, own: Mapping[str, Tensor]) -> None:
        """Called after a resume with this rank's own tensors."""
        ...


def outer_step_of(context: RankContext, model: nn.Module, optimizer: torch.optim.Optimizer) -> OuterStep | None:
    """Outer steps of the plan; None: all ranks average every step.

    Raises:
        ConfigError: There is only one replica.
    """
    return WorkerStep(context, model) if context.plan.worker else make_outer_step(context, model, optimizer)
