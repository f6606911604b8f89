"""Answers of a round merged into one change: clipped first, then mean, median or trimmed mean, in double precision."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from gangline.federated.protocol import Contribution, Tensors
from gangline.spec.federated import FederatedTable, Merge, RefusedReason

_TRIMMED_SHARE = 0.1
"""Share of the answers that is left out at each end."""


def weight_of(table: FederatedTable, samples: int) -> float:
    """What an answer of `samples` samples weighs in a mean."""
    return 1.0 if table.most_samples is None else float(min(samples, table.most_samples))


def norm_of(change: Tensors) -> float:
    """Euclidean norm over all tensors together."""
    return sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in change.values()))


def clip(change: Tensors, most: float | None) -> dict[str, NDArray[np.float32]]:
    """`change` scaled so that its norm is at most `most`; None: as it is."""
    norm = norm_of(change)
    factor = 1.0 if most is None or norm <= most else most / norm
    return {name: (array * factor).astype(np.float32) for name, array in change.items()}


def refusal(answer: Contribution, weights: Tensors, roster: Sequence[str]) -> RefusedReason | None:
    """Why `answer` to a call with `weights` is not merged; None: it is.

    Names, shapes and types of a change are those of the weights, and all numbers are finite.
    """
    if not answer.members or not set(answer.members) <= set(roster):
        return "unknown_member"
    if len(set(answer.members)) < len(answer.members):
        return "second_answer"
    numbers = [answer.weight, answer.loss or 0.0, *(each for pair in answer.metrics.values() for each in pair)]
    if not np.isfinite(numbers).all() or answer.weight <= 0:
        return "not_finite"
    return None if answer.change is None else _refusal_of_change(answer.change, weights)


def _refusal_of_change(change: Tensors, weights: Tensors) -> RefusedReason | None:
    if change.keys() != weights.keys():
        return "shape"
    for name, array in change.items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != weights[name].shape:
            return "shape"
    return None if all(np.isfinite(each).all() for each in change.values()) else "not_finite"


def merge(table: FederatedTable, answers: Sequence[Contribution]) -> dict[str, NDArray[np.float32]]:
    """The change that `answers`, which all have one, make together.

    Answers are ordered by the names of their members, so that sums do not depend on who was first. No answer weighs
    more than the table lets its members weigh, whatever it says.
    """
    ordered = sorted(answers, key=lambda answer: answer.members)
    most = table.most_samples or 1
    weights = np.array(
        [min(contribution.weight, most * len(contribution.members)) for contribution in ordered], dtype=np.float64
    )
    changes = [
        clip(contribution.change, table.clip_norm) for contribution in ordered if contribution.change is not None
    ]
    combine = _RULES[table.merge]
    return {
        name: np.asarray(
            combine(np.stack([change[name] for change in changes]).astype(np.float64), weights), np.float32
        )
        for name in sorted(changes[0])
    }


def means_of(answers: Sequence[Contribution]) -> tuple[float | None, dict[str, float]]:
    """Mean training loss of `answers`, by weight, and the mean of each metric over all held-out samples."""
    ordered = sorted(answers, key=lambda answer: answer.members)
    losses = [(each.loss, each.weight) for each in ordered if each.loss is not None]
    sums: dict[str, tuple[float, float]] = {}
    for contribution in ordered:
        for name, (total, weight) in contribution.metrics.items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = before[0] + total, before[1] + weight
    loss = sum(loss * weight for loss, weight in losses) / sum(weight for _, weight in losses) if losses else None
    return loss, {name: total / weight for name, (total, weight) in sorted(sums.items()) if weight > 0}


Combine = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""Rule that combines the changes of a tensor, one an answer, with the weights of the answers."""


def _trimmed(changes: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
    cut = ceil(len(changes) * _TRIMMED_SHARE)
    kept: NDArray[np.float64] = np.sort(changes, axis=0)[cut : len(changes) - cut]
    return np.asarray(kept.mean(axis=0), dtype=np.float64)


_RULES: Mapping[Merge, Combine] = {
    "mean": lambda changes, weights: np.tensordot(weights, changes, axes=1) / weights.sum(),
    "median": lambda changes, _: np.median(changes, axis=0),
    "trimmed": _trimmed,
}
