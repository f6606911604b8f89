"""One update: backward passes, the mean over all ranks and micro-batches, norm, clipping, the optimizer.

DDP and FSDP divide summed gradients by the number of data-parallel ranks, so each loss is scaled by that number over
the global weight. That weight is known only when the last micro-batch is through, so the step's *reference* (the weight
of the step before, kept in checkpoints) stands in for it, and gradients are corrected by reference / weight where they
differ: with equal batches never.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from gangline.errors import ConfigError
from gangline.train.loop.clip import clip, global_norm, scale
from gangline.train.loop.clock import Clock
from gangline.train.loop.wait import WaitMeter
from gangline.train.parallel.data_parallel import DataParallel
from gangline.train.task import Loss


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSums:
    """Of all ranks and micro-batches of one step, before its update."""

    loss: float
    """Mean."""
    weight: float
    norm: float
    """Of the gradients, before clipping."""


class GlobalSums:
    """Loss and weight of a step on their way to all ranks; they stay on the device of the loss, so no rank halts."""

    def __init__(self, total: Tensor, weight: float | Tensor, *, ranks: int) -> None:
        numbers = [torch.as_tensor(each, dtype=torch.float64, device=total.device) for each in (total, weight)]
        self._sums = torch.stack(numbers)
        self._work = dist.all_reduce(self._sums, async_op=True) if ranks > 1 else None

    def read(self) -> tuple[float, float]:
        """Total and weight over all ranks, once they are there."""
        if self._work is not None:
            self._work.wait()
        total, weight = self._sums.tolist()
        return total, weight


class Update:
    """Turns losses into one update after another; every rank calls the same methods in the same order."""

    def __init__(
        self, wrapped: DataParallel, optimizer: torch.optim.Optimizer, *, scaler: GradScaler, clip_norm: float | None,
        ranks: int, phase: Callable[[str], None], clock: Clock, waits: WaitMeter, reference: float,
    ) -> None:  # fmt: skip
        """`ranks` counts data-parallel peers, `phase` is told what begins."""
        self._wrapped, self._optimizer, self._scaler = wrapped, optimizer, scaler
        self._clip_norm, self._ranks = clip_norm, ranks
        self._phase, self._clock, self._waits = phase, clock, waits
        self.reference = reference
        self._parameters: list[nn.Parameter] = [each for each in wrapped.model.parameters() if each.requires_grad]
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._total: Tensor | None = None
        self._weight: float | Tensor = 0.0
        self._sums: GlobalSums | None = None
        self.learning_rate = self._rates[0]

    def backward(self, loss: Loss, *, is_last: bool) -> None:
        """Add the gradients of one micro-batch; the sums of the step travel while the last one goes back."""
        _check(loss)
        self._phase("backward")
        total = loss.total.detach()
        self._total = total if self._total is None else self._total + total
        self._weight = self._weight + loss.weight
        if is_last:
            self._sums = GlobalSums(self._total, self._weight, ranks=self._ranks)
        share = self._scaler.scale(loss.total * (self._ranks / self.reference))
        self._wrapped.watch(share)
        share.backward()  # type: ignore[no-untyped-call]
        self._book_wait("backward")

    def forward_done(self) -> None:
        """The forward pass and the loss of a micro-batch are through."""
        self._book_wait("forward")

    def sum_up(self) -> StepSums:
        """After the last backward: global loss and norm; gradients are those of the mean loss now."""
        assert self._sums is not None, "a step has a last micro-batch"
        self._phase("wait")
        total, weight = self._sums.read()
        if not weight > 0:
            raise ConfigError(f"the weights of one step sum to {weight}; a batch must weigh more than 0")
        self._phase("optimizer")
        self._scaler.unscale_(self._optimizer)
        if weight != self.reference:
            scale(self._parameters, self.reference / weight)
        self._norm = global_norm(self._parameters)
        self.reference = weight
        return StepSums(loss=total / weight, weight=weight, norm=float(self._norm))

    def apply(self, *, rate_ratio: float) -> None:
        """Clip, update, forget the gradients."""
        if self._clip_norm is not None:
            clip(self._parameters, self._norm, max_norm=self._clip_norm)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * rate_ratio
        self.learning_rate = self._rates[0] * rate_ratio
        self._scaler.step(self._optimizer)
        self.drop()

    def drop(self) -> None:
        """Forget the gradients of this step, applied or not."""
        self._scaler.update() if self._scaler.is_enabled() else None
        self._optimizer.zero_grad(set_to_none=True)
        self._total, self._weight, self._sums = None, 0.0, None

    def _book_wait(self, phase: str) -> None:
        waited = self._waits.take()
        self._clock.switch("other")
        self._clock.move(phase, "wait", waited)


def _check(loss: Loss) -> None:
    if not isinstance(loss, Loss):
        raise ConfigError(f"loss must return gangline.train.Loss(total=, weight=), found {type(loss).__name__}")
    if loss.total.ndim:
        raise ConfigError(f"Loss.total is one number, found shape {tuple(loss.total.shape)}; sum it up")
