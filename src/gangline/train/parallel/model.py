"""What the loop sees of a model, however it is wrapped."""

from typing import Protocol

from torch import Tensor, nn


class ParallelModel(Protocol):
    """One wrapped model."""

    @property
    def model(self) -> nn.Module:
        """What is called."""
        ...

    @property
    def bare(self) -> nn.Module:
        """What is saved: names without a wrapper's prefix, and of a pipeline this rank's part only."""
        ...

    @property
    def sharded(self) -> bool:
        """`fully_shard` is around it: it casts by itself."""
        ...

    def set_sync(self, last: bool) -> None:
        """Before the forward pass of a micro-batch: gradients are reduced only after the last one of a step."""
        ...

    def watch(self, loss: Tensor) -> None:
        """Before its backward pass, whose waiting is to be measured."""
        ...

    def backward_done(self) -> None:
        """After that backward pass."""
        ...
