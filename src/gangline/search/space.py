"""Space of a search: which overrides a setting means, and whether every bound and choice is one that its key takes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.line.request.run_request import resolve_request
from gangline.spec.config.problems import ConfigProblem, FileError, show
from gangline.spec.search import Dimension, Scalar

DIGITS = 6
"""Significant digits of a drawn number, so that a setting can be read, written and repeated."""
MOST_PROBES = 200


def override(key: str, value: Scalar) -> str:
    """`KEY=VALUE`, as `--set` takes it."""
    if not isinstance(value, (str, bool)):
        return f"{key}={value!r}"
    return f"{key}={json.dumps(value, ensure_ascii=False)}".replace(
        "\x7f", "\\u007f"
    )  # a character of JSON, not of TOML


def overrides(settings: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Settings as `--set` takes them, by key."""
    return tuple(override(key, settings[key]) for key in sorted(settings))


def rounded(dimension: Dimension, value: Scalar) -> Scalar:
    """A drawn value as trials get it: of a range without steps the nearest number of six digits inside."""
    if not isinstance(value, float) or dimension.choices or dimension.step is not None:
        return value
    low, high = dimension.low, dimension.high
    assert low is not None, "a range has bounds"
    assert high is not None, "a range has bounds"
    return min(max(float(f"{value:.{DIGITS}g}"), float(low)), float(high))


def grid_size(space: Mapping[str, Dimension]) -> int | None:
    """Number of settings of a space without continuous ranges; None: there is no such number."""
    size = 1
    for dimension in space.values():
        values = grid_values(dimension)
        if values is None:
            return None
        size *= len(values)
    return size


def grid_values(dimension: Dimension) -> list[Scalar] | None:
    """All values of a key in order; None of a continuous range, or of one with more than 10,000."""
    if dimension.choices:
        return list(dimension.choices)
    low, high = dimension.low, dimension.high
    step = dimension.step or (1 if dimension.is_whole else None)
    if low is None or high is None or step is None or (high - low) / step > 10_000:
        return None
    return [low + index * step for index in range(int((high - low) / step + 1e-9) + 1)]


def require_space(
    repository: Repository, commit: str, space: Mapping[str, Dimension], *, also: Iterable[str] = ()
) -> None:
    """Read the line with both bounds of each range and with every choice.

    Args:
        repository: Where the commit lies.
        commit: Commit whose line is searched.
        space: Keys with their values.
        also: Overrides that every trial has.

    Raises:
        FileError: The line refuses one; each key is named with the value and the reason.
    """
    problems: list[ConfigProblem] = []
    for key, dimension in space.items():
        for value in _probes(dimension):
            setting = [*also, override(key, value)]
            try:
                resolve_request(repository.root, commit=commit, overrides=setting, strategy=None)
            except FileError as error:
                reason = str(error.problems[0]) if error.problems else str(error)
                works = f"with it the line says: {reason}"
                problems.append(ConfigProblem(f'search.space."{key}"', "values that the key takes", show(value), works))
                break
            except ConfigError as error:
                works = str(error).splitlines()[0]
                problems.append(ConfigProblem(f'search.space."{key}"', "values that the key takes", show(value), works))
                break
    if problems:
        raise FileError("line.toml", problems)


def _probes(dimension: Dimension) -> Iterator[Scalar]:
    if dimension.choices:
        yield from dimension.choices[:MOST_PROBES]
        return
    for bound in (dimension.low, dimension.high):
        if bound is not None and isfinite(bound):
            yield bound if dimension.is_whole else float(bound)
