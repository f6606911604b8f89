"""Bounds of all numbers of a table, as they stand next to their keys."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_type_hints

from gangline.spec.bounds import Bound, split_bounds
from gangline.spec.config.problems import ConfigProblem, show


def bound_problems(table: Any, key: str = "") -> Iterator[ConfigProblem]:
    """Numbers of `table`, which is called `key`, and of the tables in it, that are out of their bounds."""
    cls: Any = type(table)
    for name, bounds in _bounds_of(cls).items():
        yield from _problems(f"{key}.{name}" if key else name, getattr(table, name), bounds)


def _problems(key: str, value: Any, bounds: tuple[Bound, ...]) -> Iterator[ConfigProblem]:
    if is_dataclass(value):
        yield from bound_problems(value, key)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _problems(f"{key}.{name}", each, bounds)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from _problems(f"{key}[{index}]", each, ())
    elif isinstance(value, (int, float)):
        broken = (each for each in bounds if not each.holds(value))
        yield from (ConfigProblem(key, each.wanted, show(value), each.works) for each in broken)


@cache
def _bounds_of(cls: Any) -> dict[str, tuple[Bound, ...]]:
    return {name: split_bounds(kind)[1] for name, kind in get_type_hints(cls, include_extras=True).items()}
