"""Weights of a session's evaluations and those of its checkpoints, compared by a fingerprint of this rank's tensors."""

import hashlib
from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor, nn

from gangline.optim.executors.rank_updates import local_part
from gangline.spec.gang.status import Evaluation, WeightsFile
from gangline.train.account.evaluations import Evaluations


_OTHER = "other weights"


class MeasuredWeights:
    """On which weights each reported metric was measured, as far as `session.evaluate` measured it; local."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._saved: dict[int, str] = {}
        """Fingerprint of the weights of each save, by step."""
        self._evaluated: tuple[str, Mapping[str, float]] = ("", {})
        self._reported: dict[str, tuple[int, float, str]] = {}
        """Step, value and fingerprint of each metric; an empty fingerprint: not known."""

    def saved(self, step: int) -> None:
        """The weights of now are saved."""
        self._saved[step] = fingerprint(self._model)

    def evaluated(self, found: Mapping[str, float]) -> None:
        """`found` was measured on the weights of now."""
        self._evaluated = fingerprint(self._model), dict(found)

    def reported(self, step: int, metrics: Mapping[str, float]) -> None:
        """A metric is of the last evaluation if that has its name and value."""
        weights, found = self._evaluated
        for name, value in metrics.items():
            self._reported[name] = step, value, weights if found.get(name) == value else ""

    def evaluations(self, checkpoint: str | None) -> tuple[Evaluation, ...]:
        """What is known of the reported metrics: of `checkpoint`, or of other weights than its own."""
        number = checkpoint.rpartition("-")[2] if checkpoint else ""
        wanted = self._saved.get(int(number)) if number.isdecimal() else None
        found = Evaluations()
        for name, (step, value, weights) in self._reported.items():
            if checkpoint and wanted and weights:
                found.add(step, {name: value}, {checkpoint if weights == wanted else _OTHER: WeightsFile()})
        return found.all()


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the sums of this rank's part of each parameter and buffer, plain and of absolute values."""
    parts = [local_part(each.detach()) for each in chain(model.parameters(), model.buffers())]
    sums = [_sums(part) for part in parts if part.numel() and not part.is_meta]
    return hashlib.sha256(repr(sums).encode()).hexdigest()


def _sums(part: Tensor) -> list[float]:
    values = (torch.view_as_real(part) if part.is_complex() else part).double()
    return list(map(float, torch.stack([values.sum(), values.abs().sum()]).tolist()))
