"""What an update rule of whole matrices has to say; executors call it and know nothing of its mathematics."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.plan.costs import RuleSpec, Shape

MatrixState = MutableMapping[str, Tensor]
"""State tensors by the names of `RuleSpec.state`."""
Options = Mapping[str, Any]
"""Options of one parameter group: those of `MatrixRule.defaults`, with the learning rate of this step."""

Total = Callable[[Tensor], Tensor]
"""Sum of a tensor over the ranks that share an update, on all of them; of the same dtype."""


@runtime_checkable
class MatrixRule(Protocol):
    """An update in three parts: two of single elements, made wherever an element is stored, and one of whole matrices.

    The parts are called in this order, once a step, for every parameter that has a gradient. All of them run without
    autograd. A subclass has `spec`, `defaults` and `compute` at least.
    """

    @property
    @abstractmethod
    def spec(self) -> RuleSpec:
        """Its costs and the shapes of its state, for the plan."""
        ...

    @property
    @abstractmethod
    def defaults(self) -> dict[str, Any]:
        """Options of a parameter group with their defaults: plain numbers, strings and tuples; `lr` among them."""
        ...

    def prepare(self, gradient: Tensor, state: MatrixState, options: Options) -> Tensor:
        """What the owner is to get of a gradient: one element depends on the same element of `gradient` and `state`.

        The gradient itself, where a subclass has none of its own.

        Args:
            gradient: The part of the parameter that this rank holds, of any shape; it is not changed. Parameters that a
                split rule cuts into several matrices come as one.
            state: Tensors that `spec.state` calls "sharded", in the layout of `gradient`; changed in place.
            options: Of the group.
        """
        del state, options
        return gradient

    @abstractmethod
    def compute(
        self, batch: Tensor, states: Sequence[MatrixState], options: Options, *, refresh: Sequence[bool]
    ) -> Tensor:
        """Updates of whole matrices, by their one owner.

        Args:
            batch: What `prepare` gave, `[B, rows, columns]`, contiguous.
            states: Of each matrix the tensors that `spec.state` calls "owner"; changed in place.
            options: Of the group.
            refresh: Of each matrix: whether this is the step of its phase, in which roots or bases are refreshed.

        Returns:
            `[B, rows, columns]`, float32.
        """
        ...

    def compute_shared(self, part: Tensor, options: Options, total: Total) -> Tensor:
        """Columns of the update of a matrix that a team shares; a rule whose `spec.is_shareable` is true has it.

        Collective over the team.

        Args:
            part: `[shorter side, columns]`: this rank's columns of the matrix, or of its transpose if that is wider.
            options: Of the group.
            total: Sums over the team.

        Returns:
            The same columns of the update, float32.

        Raises:
            ConfigError: It has none.
        """
        del part, options, total
        name = type(self).__name__
        raise ConfigError(f"{name}.spec.is_shareable is true, and {name} has no compute_shared; use team = 'off'")

    def apply(self, parameter: Tensor, update: Tensor, options: Options, shape: Shape) -> None:
        """Change `parameter` in place: one element depends on the same element of `update`.

        Decayed by `lr` times `weight_decay`, if there is one, then less `lr` times the update, where a subclass has
        none of its own.

        Args:
            parameter: The part of one matrix that this rank holds.
            update: Of the same elements.
            options: Of the group.
            shape: Of the whole matrix.
        """
        del shape
        parameter.mul_(1 - options["lr"] * options.get("weight_decay", 0.0))
        parameter.add_(update, alpha=-options["lr"])


@contextmanager
def ieee_products() -> Iterator[None]:
    """No TF32 or bfloat16 inside float32 products of this block: orthogonal bases and roots do not survive them.

    The setting belongs to the process: it holds for other threads as long as the block lasts.
    """
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]  # torch sets it at run time
    before = [each.fp32_precision for each in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision
