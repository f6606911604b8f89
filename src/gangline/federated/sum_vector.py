"""Numbers of one answer as fixed-point integers whose sum is exact, and back.

The change comes first, 32 bits a number, in units of `clip_norm * roster / 2**31`: as no number is above the norm, a
sum over all members of the roster stays in range. Weight, loss and metrics follow, 64 bits a number in units of 2**-24.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.errors import IntegrityError
from gangline.federated.merge import clip
from gangline.federated.protocol import Contribution, Tensors
from gangline.spec.federated import FederatedTable

MOST_METRICS = 100
"""Metrics of all members in one sum."""
_UNITS_OF_SCALARS = 2.0**24
_LARGEST_SCALAR = 2.0**38
"""A thousand of them stay below 2**63."""


def unit_of(table: FederatedTable, roster: int) -> float:
    """Value of one unit of a change; `roster` is the number of members that may take part."""
    assert table.clip_norm is not None, "federated_rules wants a norm with a secure sum"
    return table.clip_norm * roster / (2.0**31 - roster)


def to_bytes(answer: Contribution, table: FederatedTable, *, roster: int) -> bytes:
    """Numbers of the answer of one member, its change clipped and times its share of the largest weight.

    Raises:
        IntegrityError: A number is not finite or beyond the range: its sum would be wrong for everybody.
    """
    share = answer.weight / (table.most_samples or 1)
    scalars = [answer.weight, answer.weight * (answer.loss or 0.0)]
    scalars += [each for name in sorted(answer.metrics) for each in answer.metrics[name]]
    if not np.isfinite(scalars).all() or max(map(abs, scalars)) > _LARGEST_SCALAR or not 0 < share <= 1:
        raise IntegrityError(f"a secure sum wants finite numbers up to {_LARGEST_SCALAR:g}, found {scalars}")
    head = b""
    if answer.change is not None:
        if not all(np.isfinite(array).all() for array in answer.change.values()):
            raise IntegrityError("a secure sum wants finite numbers, found others in the change")
        clipped = clip(answer.change, table.clip_norm)
        flat = np.concatenate([clipped[name].ravel() for name in sorted(clipped)]).astype(np.float64)
        head = np.rint(flat * share / unit_of(table, roster)).astype("<i4").tobytes()
    return head + np.rint(np.array(scalars) * _UNITS_OF_SCALARS).astype("<i8").tobytes()


def from_bytes(
    data: bytes, members: Sequence[str], table: FederatedTable, *, roster: int, weights: Tensors | None,
    names: Sequence[str],
) -> Contribution:  # fmt: skip
    """The answer of all `members` together, from the sum of what `to_bytes` made of theirs.

    Args:
        data: The sum.
        members: Who is in it.
        table: Of the line.
        roster: Number of members that may take part.
        weights: Of the call; their names and shapes are those of the change. None: the round does not train.
        names: Metrics, sorted.

    Raises:
        IntegrityError: The sum has another length, or no weight.
    """
    sizes = {name: weights[name].size for name in sorted(weights)} if weights is not None else {}
    length = 4 * sum(sizes.values())
    wanted = length + 8 * (2 + 2 * len(names))
    if len(data) != wanted:
        raise IntegrityError(f"wanted a sum of {wanted} bytes, found {len(data)}")
    weight, loss, *pairs = (np.frombuffer(data, "<i8", offset=length) / _UNITS_OF_SCALARS).tolist()
    if weight <= 0:
        raise IntegrityError(f"wanted a sum of weights above 0, found {weight}")
    change: dict[str, NDArray[np.float32]] | None = None
    if weights is not None:
        total = np.frombuffer(data, "<i4", count=length // 4).astype(np.float64) * unit_of(table, roster)
        parts = np.split(total / (weight / (table.most_samples or 1)), np.cumsum(list(sizes.values()))[:-1])
        change = {
            name: part.astype(np.float32).reshape(weights[name].shape) for name, part in zip(sizes, parts, strict=True)
        }
    return Contribution(
        members=tuple(sorted(members)), weight=weight, change=change, loss=None if change is None else loss / weight,
        metrics=dict(zip(names, zip(pairs[::2], pairs[1::2], strict=True), strict=True)),
    )  # fmt: skip
