"""Weights of a session's evaluations and those of its checkpoints, compared by a fingerprint of this rank's tensors."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gangline.optim.executors.rank_updates import local_part
from gangline.spec.gang.status import WeightsEvaluation, WeightsFile
from gangline.train.account.reports import Evaluations

_OTHER = "other weights"


class MeasuredWeights:
    """Weights that reported metrics are of: those of `session.evaluate`, else the model's after the step."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._saved: dict[int, str] = {}
        """Fingerprint of the weights of each save, by step."""
        self._evaluated: tuple[int, str, Mapping[str, float]] = (-1, "", {})
        """Step, fingerprint and metrics of the last evaluation."""
        self._reported: dict[str, tuple[int, float, str]] = {}
        """Step, value and fingerprint of each metric; an empty fingerprint: of the model after this step."""

    def saved(self, step: int) -> None:
        """The weights of now are saved, or were read; all ranks together, as sharded models gather them again."""
        self._saved[step] = fingerprint(self._model.state_dict())

    def evaluated(self, step: int, found: Mapping[str, float]) -> None:
        """`found` was measured on the weights of now; all ranks together."""
        self._evaluated = step, fingerprint(self._model.state_dict()), dict(found)

    def reported(self, step: int, metrics: Mapping[str, float]) -> None:
        """A metric is of the last evaluation if that has its name and value, or came after the same step; local."""
        evaluated, weights, found = self._evaluated
        for name, value in metrics.items():
            if found.get(name) == value:
                self._reported[name] = evaluated, value, weights
            else:
                self._reported[name] = step, value, weights if evaluated == step else ""

    def evaluations(self, checkpoint: str | None) -> tuple[WeightsEvaluation, ...]:
        """What is known of the reported metrics: of `checkpoint`, or of other weights than its own."""
        number = checkpoint.rpartition("-")[2] if checkpoint else ""
        if checkpoint is None or not number.isdecimal():
            return ()
        saved, found = self._saved.get(int(number)), Evaluations()
        for name, (step, value, weights) in self._reported.items():
            if not (weights and saved is None):
                is_saved = weights == saved if weights else step == int(number)
                found.add(step, {name: value}, {checkpoint if is_saved else _OTHER: WeightsFile()})
        return found.all()


def fingerprint(state: Mapping[str, object]) -> str:
    """SHA-256 over sums of this rank's part of each tensor of `state`, plain and of absolute values; local."""
    parts = {name: local_part(each.detach()) for name, each in state.items() if isinstance(each, Tensor)}
    held = {name: part for name, part in parts.items() if part.numel() and not part.is_meta}
    sums = torch.stack(list(map(_sums, held.values()))).tolist() if held else []
    return hashlib.sha256(repr([*zip(held, sums, strict=True)]).encode()).hexdigest()


def _sums(part: Tensor) -> Tensor:
    """float64 `[2]`, of a tensor of any kind without a copy of those of 16 bits and more."""
    values = torch.view_as_real(part) if part.is_complex() else part
    if not values.is_floating_point() or values.itemsize == 1:
        values = values.double()
    norm = torch.linalg.vector_norm(values, ord=1, dtype=torch.float64)
    return torch.stack([values.sum(dtype=torch.float64), norm])
