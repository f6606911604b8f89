"""Private local training: Opacus clips the gradient of each record, adds noise, and accounts for what was spent.

`epsilon` is the budget of one record of one member over all trainings of the run, lost rounds included. Batches are
Poisson samples, as the account wants them; samples and noise are drawn from the system, never from the run's seed.
"""

import inspect
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from gangline.errors import CapacityError, ConfigError, NotInstalledError
from gangline.federated.protocol import Spent
from gangline.spec.federated import FederatedTable
from gangline.spec.plan import Plan
from gangline.train.loop.batches import collate
from gangline.train.loop.trainer import Trainer


@dataclass(kw_only=True, slots=True)
class RecordPrivacy:
    """Noise of one member's trainings, and what they have spent."""

    table: FederatedTable
    noise: float
    """Standard deviation of the noise, in units of `clip_grad`."""
    sample_rate: float
    trainings: int = 0
    """Begun so far, merged or not."""
    most_trainings: int
    _accountant: Any = field(default=None, repr=False)

    @staticmethod
    def of(plan: Plan, *, samples: int) -> "RecordPrivacy | None":
        """Privacy that the plan asks of a member with so many records; None: it asks for none.

        Raises:
            NotInstalledError: Opacus is missing.
            ConfigError: No noise gives that epsilon.
        """
        assert plan.federation is not None, "a federated plan"
        table = plan.federation.table
        if table.epsilon is None:
            return None
        most, rate = plan.most_trainings, min(plan.global_batch / samples, 1.0)
        noise = _noise(table.epsilon, table.delta, rate, most * table.local_steps)
        return RecordPrivacy(
            table=table, noise=noise, sample_rate=rate, most_trainings=most,
            _accountant=_opacus().accountants.RDPAccountant(),
        )  # fmt: skip

    def begin(self) -> None:
        """Count one more training before its first step.

        Raises:
            CapacityError: The budget covers no more.
        """
        if self.trainings >= self.most_trainings:
            raise CapacityError(
                f"federated.epsilon: the budget covers {self.most_trainings} trainings, and they were made; "
                "more federated.spare_rounds bear more lost rounds"
            )
        self.trainings += 1

    def step(self) -> None:
        """Account for one local step."""
        self._accountant.step(noise_multiplier=self.noise, sample_rate=self.sample_rate)

    def resume(self, trainings: int) -> None:
        """Account for trainings that earlier processes began, and for no others."""
        self.trainings, self._accountant.history = trainings, []
        for _ in range(trainings * self.table.local_steps):
            self.step()

    def spent(self) -> Spent:
        """Privacy spent by the steps so far; a tenth of a second."""
        epsilon = float(self._accountant.get_epsilon(delta=self.table.delta)) if len(self._accountant) else 0.0
        return Spent(epsilon=epsilon, accountant=f"opacus {version('opacus')}")


class PrivateSteps:
    """Gradients of Poisson samples of one member's records, each clipped, with noise."""

    def __init__(
        self, trainer: Trainer, model: nn.Module, optimizer: torch.optim.Optimizer, data: Any, privacy: RecordPrivacy
    ) -> None:
        self._trainer, self._model, self._optimizer = trainer, model, optimizer
        self._data, self._privacy = data, privacy
        self._device = trainer.context.device
        self._records = torch.Generator().manual_seed(secrets.randbits(63))
        self._noise = torch.Generator(self._device).manual_seed(secrets.randbits(63))

    @contextmanager
    def model_ready(self) -> Iterator[None]:
        """The model has gradients by record inside the block."""
        opacus = _opacus()
        try:
            self._wrapped = opacus.GradSampleModule(self._model, loss_reduction="sum")
        except (NotImplementedError, ValueError) as error:
            raise ConfigError(
                f"federated.epsilon: {type(self._model).__name__} has no gradients by record: {error}; GroupNorm and "
                "LayerNorm work where BatchNorm does not"
            ) from error
        self._private = opacus.optimizers.DPOptimizer(
            self._optimizer, noise_multiplier=self._privacy.noise, max_grad_norm=self._privacy.table.clip_grad,
            expected_batch_size=self._privacy.sample_rate * len(self._data), generator=self._noise,
        )  # fmt: skip
        handles = [
            module.register_forward_pre_hook(_by_position, with_kwargs=True)
            for module in self._model.modules()
            if any(own.requires_grad for own in module.parameters(recurse=False))
        ]
        self._privacy.begin()
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._wrapped.to_standard_module()

    def backward(self, step: int) -> tuple[float, float]:
        """Leave the private gradients in the parameters; returns sum and weight of the loss of the records drawn."""
        del step
        drawn = torch.rand(len(self._data), generator=self._records) < self._privacy.sample_rate
        indices = drawn.nonzero().flatten().tolist()
        size = self._trainer.context.plan.micro_batch
        parts = [indices[start : start + size] for start in range(0, len(indices), size)] or [[]]
        total = weight = 0.0
        self._private.zero_grad()
        for number, part in enumerate(parts, start=1):
            batch = collate(self._data, part or [0], self._device)
            if not part:
                batch = {name: value[:0] for name, value in batch.items()}
            loss = self._trainer.loss(self._wrapped, batch)
            loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total, weight = total + float(loss.total.detach()), weight + float(loss.weight)
            self._private.signal_skip_step(do_skip=number < len(parts))
            self._private.pre_step()
            if number < len(parts):
                self._private.zero_grad()
        self._privacy.step()
        return total, weight


def _by_position(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Arguments of a layer by position: Opacus does not see what a layer is called with by name."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return bound.args, bound.kwargs


@cache
def _noise(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Noise with which so many steps spend `epsilon`; it takes a second, and members of one size share it."""
    try:
        noise_multiplier = _opacus().accountants.utils.get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=sample_rate, steps=steps, accountant="rdp"
        )
    except ValueError as error:
        raise ConfigError(
            f"federated.epsilon: wanted noise for epsilon {epsilon} and delta {delta}, found none: {error}; a larger "
            "epsilon works"
        ) from error
    return float(noise_multiplier)


def _opacus() -> Any:
    try:
        import opacus
        import opacus.accountants.utils
    except ImportError as error:
        raise NotInstalledError(
            "federated.epsilon wants opacus, which is not installed; pip install 'gangline[federated]'"
        ) from error
    return opacus
