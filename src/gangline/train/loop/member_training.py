"""Local training of a member in one round, and its judgement of weights on its own held-out data."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gangline.errors import ConfigError
from gangline.federated.merge import clip, weight_of
from gangline.federated.protocol import Contribution, RoundCall, Tensors
from gangline.train import heartbeat
from gangline.train.loop import gradient_norm
from gangline.train.loop.batches import collate
from gangline.train.loop.evaluation import batch_sums
from gangline.train.loop.learning_rate import rate_function
from gangline.train.loop.private_training import PrivateSteps, RecordPrivacy
from gangline.train.loop.random_state import seed_everything
from gangline.train.loop.sample_order import SampleOrder
from gangline.train.loop.trainer import Trainer, local_optimizer
from gangline.train.model.exchanged import change_since, exchanged_tensors, load_arrays
from gangline.train.runtime.initialization import derived_seed
from gangline.train.task import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalMember:
    """One member's data, and its privacy."""

    name: str
    train: Any
    """Samples with a length and numbers."""
    holdout: Any
    privacy: RecordPrivacy | None = None
    """None: the run asks for none."""


class MemberTraining:
    """A model on this rank that trains for one member at a time; nothing of a round is left in the next one.

    Which samples a round takes is a function of seed, member and round; with a secure sum also of the attempt, so that
    no change enters two sums.
    """

    def __init__(self, trainer: Trainer) -> None:
        assert trainer.context.plan.federation is not None, "a federated plan"
        self._trainer, self._plan, self._seed = trainer, trainer.context.plan, trainer.job.seed
        self._table = trainer.context.plan.federation.table
        self._model: nn.Module = deepcopy(trainer.wrapped.bare)
        self._rate_ratio = rate_function(self._plan.schedule)

    def train(self, member: LocalMember, call: RoundCall) -> Contribution:
        """Train from the call's weights for one round; the change is clipped as the line says.

        Raises:
            ConfigError: The member has no samples, or private training does not support the model.
            CapacityError: Its privacy budget covers no further training.
        """
        plan, number = self._plan, call.number
        take = call.attempt if self._table.secure_sum else 1
        load_arrays(self._model, call.weights)
        self._model.train()
        seed_everything(derived_seed(self._seed, member.name, number, take))
        optimizer = local_optimizer(self._trainer.task, self._model, self._trainer.context)
        rates = [group["lr"] for group in optimizer.param_groups]
        steps: PlainSteps | PrivateSteps
        if member.privacy is not None:
            steps = PrivateSteps(self._trainer, self._model, optimizer, member.train, member.privacy)
        else:
            order = SampleOrder(num_samples=len(member.train), seed=derived_seed(self._seed, member.name, take))
            steps = PlainSteps(self._trainer, self._model, optimizer, member.train, order)
        first = (number - 1) * self._table.local_steps
        total = weight = 0.0
        with steps.model_ready():
            for step in range(first, first + self._table.local_steps):
                heartbeat.beat(phase="forward")
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * self._rate_ratio(step + 1, plan.steps)
                loss, own = steps.backward(step)
                self._pull(call.weights)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                total, weight = total + loss, weight + own
        change = clip(change_since(self._model, call.weights), self._table.clip_norm)
        return Contribution(
            members=(member.name,), weight=weight_of(self._table, len(member.train)), change=change,
            loss=total / weight if weight else None,
        )  # fmt: skip

    def judge(self, member: LocalMember, call: RoundCall) -> Contribution:
        """Sum and weight of each metric of the call's weights on the held-out samples; no metric without any."""
        load_arrays(self._model, call.weights)
        self._model.eval()
        sums: dict[str, tuple[float, float]] = {}
        with torch.no_grad():
            for start in range(0, len(member.holdout), self._plan.micro_batch):
                heartbeat.beat(phase="evaluate")
                indices = range(start, min(start + self._plan.micro_batch, len(member.holdout)))
                batch = collate(member.holdout, indices, self._trainer.context.device)
                for name, (total, count) in batch_sums(self._trainer, self._model, batch).items():
                    before = sums.get(name, (0.0, 0.0))
                    sums[name] = before[0] + total, before[1] + count
        weight = weight_of(self._table, len(member.train))
        return Contribution(members=(member.name,), weight=weight, change=None, loss=None, metrics=sums)

    @torch.no_grad()
    def _pull(self, weights: Tensors) -> None:
        """Add the gradient of FedProx: half of prox times the squared distance from `weights`."""
        if not self._table.prox:
            return
        for name, tensor in exchanged_tensors(self._model).items():
            if tensor.grad is not None:
                tensor.grad.add_(tensor - torch.from_numpy(weights[name]).to(tensor), alpha=self._table.prox)


class PlainSteps:
    """Gradients of the mean loss over batches of one member's samples."""

    def __init__(
        self, trainer: Trainer, model: nn.Module, optimizer: torch.optim.Optimizer, data: Any, order: SampleOrder
    ) -> None:
        self._trainer, self._model, self._data, self._order = trainer, model, data, order
        self._parameters = [each for group in optimizer.param_groups for each in group["params"]]
        self._plan, self._batch = trainer.context.plan, min(trainer.context.plan.global_batch, len(data))

    @contextmanager
    def model_ready(self) -> Iterator[None]:
        """Nothing has to be prepared."""
        yield

    def backward(self, step: int) -> tuple[float, float]:
        """Leave the gradients of `step`, from 0, in the parameters; returns sum and weight of its loss."""
        first = step * self._batch
        positions = range(first, first + self._batch)
        total = weight = 0.0
        drawn, size = [self._order.sample(position) for position in positions], self._plan.micro_batch
        for indices in (drawn[start : start + size] for start in range(0, len(drawn), size)):
            batch: Batch = collate(self._data, indices, self._trainer.context.device)
            loss = self._trainer.loss(self._model, batch)
            loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total, weight = total + float(loss.total.detach()), weight + float(loss.weight)
        if weight <= 0:
            raise ConfigError(f"the weights of one step sum to {weight}; a batch must weigh more than 0")
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.div_(weight)
        if self._plan.clip_norm is not None:
            norm = gradient_norm.global_norm(self._parameters)
            gradient_norm.clip(self._parameters, norm, max_norm=self._plan.clip_norm)
        return total, weight
