"""One update of the model: backward passes, the mean over all ranks and micro-batches, norm, clipping, the optimizer.

The control message (stop, save, profile) travels with the sums of a step, which are sent before the last backward pass
and awaited after it: all ranks receive it at the end of the same step, and it costs no message of its own.
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
from gangline.train.loop.gradient_norm import clip, global_norm, scale, settle
from gangline.train.parallel.buffers import ChangingBuffers
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.tensor_parallel import whole
from gangline.train.runtime.context import RankContext
from gangline.train.task import Loss


@dataclass(frozen=True, slots=True)
class ControlMessage:
    stop: bool = False
    """Save together and leave."""
    save: bool = False
    """Save now, then go on."""
    profile: bool = False
    """There is a request to read."""

    def counts(self) -> list[float]:
        """As numbers that are added up over all ranks."""
        return [float(self.stop), float(self.save), float(self.profile)]

    @staticmethod
    def heard(sums: Sequence[float]) -> "ControlMessage":
        """What any rank said."""
        return ControlMessage(*(each > 0 for each in sums))


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSums:
    """Of all ranks and micro-batches of one step, before its update."""

    loss: float
    """Mean."""
    weight: float
    norm: float
    """Of the gradients, before clipping."""
    heard: ControlMessage
    """What all must do now that the step is done."""


class GlobalSums:
    """Loss and weight of a step on their way to all ranks; they stay on the device of the loss, so no rank halts.

    With them goes how many ranks saw buffers change that nobody knew of, and the control word.
    """

    def __init__(
        self, total: Tensor, weight: float | Tensor, *, grown: bool, word: ControlMessage, world_size: int
    ) -> None:
        known = 0.0 if isinstance(weight, Tensor) else float(weight)
        numbers = [0.0, known, float(grown), *word.counts()]
        self._sums = torch.tensor(numbers, dtype=torch.float64, device=total.device)
        self._sums[0] = total
        if isinstance(weight, Tensor):
            self._sums[1] = weight
        self._work = dist.all_reduce(self._sums, async_op=True) if world_size > 1 else None

    def read(self) -> tuple[float, float, bool, ControlMessage]:
        """Total and weight over all ranks, once they are there, whether buffers changed anew on any, and its word."""
        if self._work is not None:
            self._work.wait()
        total, weight, grown, *word = self._sums.tolist()
        return total, weight, grown > 0, ControlMessage.heard(word)


class Update:
    """Turns losses into one update after another; every rank calls the same methods in the same order."""

    def __init__(
        self, wrapped: ParallelModel, optimizer: torch.optim.Optimizer, context: RankContext, *, scaler: GradScaler,
        reference: float, word: Callable[[], ControlMessage] = ControlMessage,
    ) -> None:  # fmt: skip
        """`word`: what this rank has to say to all, asked once a step."""
        self._wrapped, self._optimizer, self._scaler = wrapped, optimizer, scaler
        self._context, self._clip_norm = context, context.plan.clip_norm
        self._counts_loss = context.counts_loss
        self.reference, self._word = reference, word
        self._parameters: list[nn.Parameter] = [each for each in wrapped.bare.parameters() if each.requires_grad]
        self._sharded = [each for each in self._parameters if isinstance(each, DTensor)]
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._given: list[float] = []
        """Rates of the last update; none: there was none since the optimizer was made or loaded."""
        self._total = self._none = torch.zeros((), device=context.device)
        self._weight: float | Tensor = 0.0
        self._sums: GlobalSums | None = None
        self.buffers, self._grown = ChangingBuffers(context, wrapped.bare), False
        self.learning_rate = self._rates[0]

    def backward(self, loss: Loss, *, is_last: bool) -> None:
        """Add the gradients of one micro-batch; the sums of the step travel while the last one goes back."""
        share = self.count(loss)
        self._context.phase("backward")
        if is_last:
            self.send()
        self._wrapped.watch(share)
        share.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._wrapped.backward_done()
        self._book_wait("backward")

    def count(self, loss: Loss) -> Tensor:
        """Take in the loss of one micro-batch; what its backward pass starts from. Local."""
        _check(loss)
        total = whole(loss.total)
        if self._counts_loss:
            self._total = self._total + total.detach()
            self._weight = self._weight + loss.weight
        return self._scaler.scale(total * (self._context.grad_divisor / self.reference))

    def send(self) -> None:
        """All micro-batches of the step are counted: every rank of the gang sends its sums, zeros if it has none."""
        world_size = self._context.plan.world_size
        self._sums = GlobalSums(
            self._total, self._weight, grown=self.buffers.grown, word=self._word(), world_size=world_size
        )

    def forward_done(self) -> None:
        """The forward pass and the loss of a micro-batch are through."""
        self._book_wait("forward")

    def sum_up(self) -> StepSums:
        """After the last backward: global loss and norm; gradients are those of the mean loss now."""
        assert self._sums is not None, "a step has a last micro-batch"
        self._context.phase("wait")
        total, weight, self._grown, heard = self._sums.read()
        if weight <= 0:
            raise ConfigError(f"the weights of one step sum to {weight}; a batch must weigh more than 0")
        self._context.phase("optimizer")
        settle(self._sharded)
        self._scaler.unscale_(self._optimizer)
        if not math.isfinite(weight):  # as its loss is then: a step to be judged, of which nothing is kept
            return StepSums(loss=math.nan, weight=self.reference, norm=math.nan, heard=heard)
        if weight != self.reference:
            scale(self._parameters, self.reference / weight)
        self._norm = global_norm(self._parameters, stages=self._context.meshes.group("pp"))
        self.reference = weight
        return StepSums(loss=total / weight, weight=weight, norm=float(self._norm), heard=heard)

    def apply(self, *, rate_ratio: float) -> None:
        """Clip, update, forget the gradients; what needs a peer comes before the update, which is made or is not.

        Raises:
            ConfigError: A program set a rate, which would have no effect.
        """
        self._require_given_rates()
        self.buffers.settle(grown=self._grown)
        if self._clip_norm is not None:
            clip(self._parameters, self._norm, max_norm=self._clip_norm)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * rate_ratio
        self._given = [group["lr"] for group in self._optimizer.param_groups]
        self.learning_rate = self._given[0]
        self._scaler.step(self._optimizer)
        self._book_wait("optimizer")
        self._forget()

    def loaded(self) -> None:
        """The optimizer has the state of a checkpoint, with the rates of its step."""
        self._given = []

    def drop(self) -> None:
        """Leave everything as it was before this step."""
        self.buffers.take_back()
        self._forget()

    def _require_given_rates(self) -> None:
        found = [group["lr"] for group in self._optimizer.param_groups]
        if self._given and found != self._given:
            raise ConfigError(
                f"the program set the learning rates {found} where the last step had {self._given}: each step takes "
                'them from train.schedule; give a schedule of your own as kind = "module:function"'
            )

    def _forget(self) -> None:
        self._scaler.update() if self._scaler.is_enabled() else None
        self._optimizer.zero_grad(set_to_none=True)
        self._total, self._weight, self._sums = self._none, 0.0, None

    def _book_wait(self, phase: str) -> None:
        waited = self._context.waits.take()
        self._context.clock.switch("other")
        self._context.clock.move(phase, "wait", waited)


def _check(loss: Loss) -> None:
    if not isinstance(loss, Loss):
        raise ConfigError(f"loss must return gangline.train.Loss(total=, weight=), found {type(loss).__name__}")
    if not isinstance(loss.total, Tensor) or loss.total.ndim:
        found = f"shape {tuple(loss.total.shape)}" if isinstance(loss.total, Tensor) else type(loss.total).__name__
        raise ConfigError(f"Loss.total is a tensor of one number, found {found}; sum it up, and keep it a tensor")
    if not loss.total.requires_grad:
        raise ConfigError(
            "Loss.total depends on no parameter that wants gradients; take it of the model's outputs, without "
            "detach(), item() or no_grad()"
        )
