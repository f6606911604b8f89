"""Data of simulated members: the samples of one split, shared out evenly, by label or by a column."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from gangline.errors import ConfigError
from gangline.spec.config.rules_federated import SPLIT
from gangline.train.runtime.initialization import derived_seed


def share_out(data: Any, split: str, *, members: int, seed: int) -> list[list[int]]:
    """Numbers of the samples of each member, sorted; each sample has one member.

    With `dirichlet:A` the samples of a label are shared out by proportions from a Dirichlet distribution, equal for
    equal seeds: the two splits of a data set get the same proportions.

    Raises:
        ConfigError: Samples have no such column, or there are not as many values as members.
    """
    found = SPLIT.fullmatch(split)
    assert found is not None, "federated_rules has checked it"
    draws = np.random.default_rng(derived_seed(seed, "members"))
    if found["column"]:
        return _by_value(_column(data, found["column"]), split, members)
    if found["alpha"] is None:
        return [sorted(part.tolist()) for part in np.array_split(draws.permutation(len(data)), members)]
    return _by_label(_column(data, None), float(found["alpha"]), members, draws)


def require_samples(shares: Sequence[Sequence[int]], split: str) -> None:
    """
    Raises:
        ConfigError: A member has nothing to train on.
    """
    if empty := [number for number, each in enumerate(shares, start=1) if not each]:
        raise ConfigError(
            f'federated.simulate.split: wanted samples for each of {len(shares)} members, "{split}" leaves '
            f"{len(empty)} without any; fewer members, a larger A or iid works"
        )


def _by_value(values: list[Any], split: str, members: int) -> list[list[int]]:
    distinct = sorted(set(values), key=str)
    if len(distinct) != members:
        raise ConfigError(
            f'federated.simulate.members: wanted one for each value of "{split}", found {members} members and '
            f"{len(distinct)} values; members = {len(distinct)} works"
        )
    return [[index for index, value in enumerate(values) if value == each] for each in distinct]


def _by_label(labels: list[Any], alpha: float, members: int, draws: np.random.Generator) -> list[list[int]]:
    shares: list[list[int]] = [[] for _ in range(members)]
    for label in sorted(set(labels), key=str):
        own = [index for index, each in enumerate(labels) if each == label]
        cuts = np.rint(np.cumsum(draws.dirichlet([alpha] * members)) * len(own)).astype(int)[:-1]
        for number, part in enumerate(np.split(np.array(own), cuts)):
            shares[number] += part.tolist()
    return [sorted(each) for each in shares]


def _column(data: Any, name: str | None) -> list[Any]:
    """Values of one column; of the only one that holds a whole number if `name` is None."""
    first = data[0]
    if name is None:
        labels = [key for key, value in first.items() if isinstance(_plain(value), int)]
        if len(labels) != 1:
            raise ConfigError(
                "federated.simulate.split: wanted one column of whole numbers as the label of a sample, found "
                f"{labels or 'none'} among {sorted(first)}; iid and column:NAME need no label"
            )
        name = labels[0]
    if name not in first:
        raise ConfigError(f"federated.simulate.split: wanted a column {name!r}, samples have {sorted(first)}")
    return [_plain(data[index][name]) for index in range(len(data))]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
