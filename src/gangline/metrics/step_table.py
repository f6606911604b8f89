"""Table of metrics by step and name, in columns: a step costs 200 bytes, not a dictionary. Pure."""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from math import isfinite
from typing import Any

from gangline.errors import IntegrityError
from gangline.spec.output_limits import MOST_NAMES, MOST_STEPS

_NONE = -sys.float_info.max
"""Stand-in in a column where a row has no such number: NaN is one."""
_LARGEST_STEP = 2**53


def number(value: Any) -> float | None:
    """`value` where it is one, NaN and infinity included; None for anything else, and for what no float holds."""
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 1000:
        return float(value)
    return None


def finite(value: Any) -> float | None:
    """`value` where it is a number that can be counted with."""
    found = number(value)
    return found if found is not None and isfinite(found) else None


def step_of(row: Mapping[str, Any]) -> int | None:
    """The step that a row or an event is about; None where it names none."""
    step = row.get("step")
    is_step = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= _LARGEST_STEP
    return step if is_step else None


class StepTable(Mapping[int, Mapping[str, float]]):
    """Rows by step, in step order; a row takes the place of all rows before it of its step and later ones.

    So a training that restarts, at its first step or after a save, leaves no later points of the earlier one.

    Args:
        names: Numbers to keep; None: all, up to MOST_NAMES.
        most_steps: More are refused.
    """

    def __init__(self, names: Collection[str] | None = None, *, most_steps: int = MOST_STEPS) -> None:
        self._wanted, self._most_steps = names, most_steps
        self._steps = array("q")
        """Ascending; numbers lie at the same places in each column."""
        self._columns: dict[str, array[float]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Raises IntegrityError for one step too many; a row that names no step is left out."""
        step = step_of(row)
        if step is None:
            return
        self._begin(step)
        for name, value in row.items():
            found = number(value)
            column = None if found is None else self._column(name)
            if found is not None and column is not None:
                column[-1] = found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, sorted."""
        return tuple(sorted(self._columns))

    def __getitem__(self, step: int) -> Mapping[str, float]:
        place = self._place(step)
        return {name: column[place] for name, column in self._columns.items() if column[place] != _NONE}

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def value(self, name: str, step: int) -> float | None:
        """Value of a step that has a row; None where the row has no such number."""
        column = self._columns.get(name)
        found = _NONE if column is None else column[self._place(step)]
        return None if found == _NONE else found

    def column(self, name: str) -> Iterator[tuple[int, float]]:
        """(step, number) of the rows that have it."""
        column = self._columns.get(name)
        if column is not None:
            yield from ((step, found) for step, found in zip(self._steps, column, strict=True) if found != _NONE)

    def _place(self, step: int) -> int:
        place = bisect_left(self._steps, step)
        if self._steps[place : place + 1] != array("q", [step]):
            raise KeyError(step)
        return place

    def _begin(self, step: int) -> None:
        drop_from(step, self._steps, *self._columns.values())
        if len(self._steps) >= self._most_steps:
            raise IntegrityError(f"metrics.jsonl: wanted at most {self._most_steps} steps, found more")
        self._steps.append(step)
        for column in self._columns.values():
            column.append(_NONE)

    def _column(self, name: str) -> "array[float] | None":
        found = self._columns.get(name)
        if found is None and (name in self._wanted if self._wanted is not None else len(self._columns) < MOST_NAMES):
            found = self._columns[name] = array("d", [_NONE]) * len(self._steps)
        return found


def drop_from(step: int, steps: "array[int]", *columns: "array[float] | array[int]") -> None:
    """Drop `step` and later ones from `steps`, which ascend, and what lies at their places in `columns`."""
    if not steps or step > steps[-1]:
        return
    place = bisect_left(steps, step)
    for each in (steps, *columns):
        del each[place:]
