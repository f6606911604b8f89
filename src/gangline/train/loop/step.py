"""One update of the model: backward passes, mean over ranks and micro-batches, norm, clipping, the optimizer.

The control message (stop, save, profile) is sent with the sums of a step, before the last backward pass, and awaited
after it: all ranks receive it at the end of the same step, and it needs no message of its own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.optim.executors.owner_reduction import OwnerReduction
from gangline.optim.executors.rank_updates import local_part
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.routing import named_parameters
from gangline.train.loop.gradient_norm import align_gradients, clip, global_norm, scale
from gangline.train.parallel.buffers import ChangingBuffers
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.tensor_parallel import whole
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.torch_compat import queue_callback
from gangline.train.task import Loss


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """What ranks request of all ranks at the end of a step."""

    stop: bool = False
    """Save together and leave."""
    save: bool = False
    """Save now, then go on."""
    profile: bool = False
    """There is a request to read."""

    def counts(self) -> list[float]:
        """The requests as numbers that are summed over all ranks."""
        return [float(self.stop), float(self.save), float(self.profile)]

    @staticmethod
    def of_sums(sums: Sequence[float]) -> "ControlMessage":
        """The requests of any rank."""
        return ControlMessage(*(each > 0 for each in sums))


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSums:
    """Sums over all ranks and micro-batches of one step, before its update."""

    loss: float
    """Mean."""
    weight: float
    norm: float
    """Norm of the gradients, before clipping."""
    message: ControlMessage
    """Requests that all ranks carry out at the end of the step."""

    @property
    def is_finite(self) -> bool:
        """Both loss and norm are."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class GlobalSums:
    """All-reduce of a step's loss and weight; they stay on the loss's device, so that no rank blocks.

    The same message has the number of ranks with newly changing buffers, and the control message.
    """

    def __init__(
        self, total: Tensor, weight: float | Tensor, *, has_new_changes: bool, message: ControlMessage, world_size: int
    ) -> None:
        known = 0.0 if isinstance(weight, Tensor) else float(weight)
        numbers = [0.0, known, float(has_new_changes), *message.counts()]
        self._sums = torch.tensor(numbers, dtype=torch.float64, device=total.device)
        self._sums[0] = total
        if isinstance(weight, Tensor):
            self._sums[1] = weight
        self._work = dist.all_reduce(self._sums, async_op=True) if world_size > 1 else None

    def read(self) -> tuple[float, float, bool, ControlMessage]:
        """Total and weight over all ranks, whether a rank has newly changing buffers, the control message; blocks."""
        if self._work is not None:
            self._work.wait()
        total, weight, has_new_changes, *message = self._sums.tolist()
        return total, weight, has_new_changes > 0, ControlMessage.of_sums(message)


class Update:
    """Makes updates of losses; every rank calls the same methods in the same order."""

    def __init__(
        self, wrapped: ParallelModel, optimizer: torch.optim.Optimizer, context: RankContext, *, scaler: GradScaler,
        reference: float, message: Callable[[], ControlMessage] = ControlMessage,
        reduction: OwnerReduction | None = None,
    ) -> None:  # fmt: skip
        """Args:
        message: Returns this rank's control message; it is called once a step.
        reduction: Sends gradients of matrices to their owners alone.
        """
        self._reduction = reduction
        self._wrapped, self._optimizer, self._scaler = wrapped, optimizer, scaler
        self._waited = getattr(optimizer, "waited_seconds", 0.0)
        """Seconds of `waited_seconds` that are booked."""
        self._context, self._clip_norm = context, context.plan.clip_norm
        self._counts_loss = context.counts_loss
        self.reference, self._message = reference, message
        self._parameters: list[nn.Parameter] = [
            parameter for parameter in wrapped.bare.parameters() if parameter.requires_grad
        ]
        self._sharded = [parameter for parameter in self._parameters if isinstance(parameter, DTensor)]
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._last_rates: list[float] = []
        """Rates of the last update; empty before the first after a load."""
        self._total = self._none = torch.zeros((), device=context.device)
        self._weight: float | Tensor = 0.0
        self._sums: GlobalSums | None = None
        self.event: Callable[[], torch.cuda.Event] | None = torch.cuda.Event if context.device.type == "cuda" else None
        """Marks a place in the work of a GPU; None: there is none, and work is done when its call returns."""
        self._computed: torch.cuda.Event | None = None
        """Where the last backward pass has computed all, before what waits for other ranks."""
        self.buffers, self._has_new_changes = ChangingBuffers(context, wrapped.bare), False
        self.learning_rate = self._rates[0]

    def backward(self, loss: Loss, *, is_last: bool) -> None:
        """Add the gradients of one micro-batch; the sums of the step are sent before the last backward pass."""
        share = self.count(loss)
        self._context.phase("backward")
        if is_last:
            self.send()
        self._wrapped.watch(share)
        if self.event is not None and is_last:
            self._computed = computed = self.event()
            share.register_hook(lambda _: queue_callback(computed.record))  # type: ignore[no-untyped-call]  # likewise
        share.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._wrapped.backward_done()
        self._book_wait("backward")

    def count(self, loss: Loss) -> Tensor:
        """Add the loss of one micro-batch; returns the tensor to run backward from. Local."""
        _check(loss)
        total = whole(loss.total)
        if self._counts_loss:
            self._total = self._total + total.detach()
            self._weight = self._weight + loss.weight
        return self._scaler.scale(total * (self._context.grad_divisor / self.reference))

    def send(self) -> None:
        """Send the sums after all micro-batches of the step are counted; every rank calls, also without a loss."""
        world_size = self._context.plan.world_size
        self._sums = GlobalSums(
            self._total,
            self._weight,
            has_new_changes=self.buffers.has_new_changes,
            message=self._message(),
            world_size=world_size,
        )

    def forward_done(self) -> None:
        """Called after forward pass and loss of a micro-batch."""
        self._book_wait("forward")

    def sum_up(self) -> StepSums:
        """Sum loss and norm over all ranks after the last backward pass; gradients become those of the mean loss."""
        assert self._sums is not None, "a step has a last micro-batch"
        if self._computed is not None:  # a GPU computes on while the host is here: that is no waiting for other ranks
            self._context.phase("backward")
            self._computed.synchronize()
        self._context.phase("wait")
        total, weight, self._has_new_changes, message = self._sums.read()
        if weight <= 0:
            raise ConfigError(f"the weights of one step sum to {weight}; a batch must weigh more than 0")
        self._context.phase("optimizer")
        align_gradients(self._sharded)
        if self._reduction is not None:
            self._reduction.drop_foreign()
        self._scaler.unscale_(self._optimizer)
        if not math.isfinite(weight):  # nor is the loss: the policy decides, and the gradients are dropped
            return StepSums(loss=math.nan, weight=self.reference, norm=math.nan, message=message)
        if weight != self.reference:
            scale(self._parameters, self.reference / weight)
        stages, reduction = self._context.meshes.group("pp"), self._reduction
        owned = (reduction.owned, reduction.group) if reduction is not None and reduction.group is not None else None
        self._norm = global_norm(self._parameters, stages=stages, owned=owned)
        self.reference = weight
        return StepSums(loss=total / weight, weight=weight, norm=float(self._norm), message=message)

    def apply(self, *, rate_ratio: float) -> None:
        """Clip, update, clear the gradients; collectives come before the update, which is made completely or not.

        Raises:
            ConfigError: A program changed a learning rate, which would have no effect.
        """
        self._require_own_rates()
        self.buffers.average(has_new_changes=self._has_new_changes)
        if self._clip_norm is not None:
            clip(self._parameters, self._norm, max_norm=self._clip_norm)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * rate_ratio
        self._last_rates = [group["lr"] for group in self._optimizer.param_groups]
        self.learning_rate = self._last_rates[0]
        self._scaler.step(self._optimizer)
        self._book_wait("optimizer")
        self._forget()

    def not_finite(self) -> list[str]:
        """Names of the parameters whose gradient has an infinity or NaN on this rank; local, blocks for each."""
        with_gradient = ((name.name, parameter.grad) for name, parameter in named_parameters(self._wrapped.bare))
        return [name for name, grad in with_gradient if grad is not None and not local_part(grad).isfinite().all()]

    def settle(self) -> None:
        """Wait for updates that the last step left outstanding, before parameters are read; local."""
        if isinstance(self._optimizer, MatrixOptimizer):
            self._optimizer.wait()
            self._book_wait(self._context.clock.phase)

    def loaded(self) -> None:
        """Called after the optimizer was loaded, with the rates of the checkpoint's step."""
        self._last_rates = []

    def drop(self) -> None:
        """Drop the step: restore buffers, clear gradients."""
        self.buffers.restore()
        self._forget()

    def _require_own_rates(self) -> None:
        found = [group["lr"] for group in self._optimizer.param_groups]
        if self._last_rates and found != self._last_rates:
            raise ConfigError(
                f"the program set the learning rates to {found}, the last step had {self._last_rates}: each step takes "
                'them from train.schedule; give a schedule of your own as kind = "module:function"'
            )

    def _forget(self) -> None:
        self._scaler.update() if self._scaler.is_enabled() else None
        self._optimizer.zero_grad(set_to_none=True)
        self._total, self._weight, self._sums, self._computed = self._none, 0.0, None, None

    def _book_wait(self, phase: str) -> None:
        before, self._waited = self._waited, getattr(self._optimizer, "waited_seconds", 0.0)
        waited = self._context.waits.take() + self._waited - before
        self._context.clock.switch("other")
        self._context.clock.move(phase, "wait", waited)


def _check(loss: Loss) -> None:
    if not isinstance(loss, Loss):
        raise ConfigError(f"loss must return gangline.train.Loss(total=, weight=), found {type(loss).__name__}")
    if not isinstance(loss.total, Tensor) or loss.total.ndim:
        kind = f"shape {tuple(loss.total.shape)}" if isinstance(loss.total, Tensor) else type(loss.total).__name__
        raise ConfigError(f"Loss.total must be a scalar tensor, found {kind}; sum it, and keep it a tensor")
    if not loss.total.requires_grad:
        raise ConfigError(
            "Loss.total depends on no parameter that requires gradients; compute it from the model's outputs, without "
            "detach(), item() or no_grad()"
        )
