"""The order of the stages: which ones are asked for, and that none is begun before those it needs. Pure."""

from collections.abc import Sequence

from gangline.errors import UsageError
from gangline.line.states import GOOD, stage
from gangline.spec.record import STAGES, Record


def chosen(start: str | None, until: str | None) -> Sequence[str]:
    """Stages from `start` to `until`, in order; raises UsageError where there are no such ones."""
    for name in (start, until):
        if name is not None and name not in STAGES:
            raise UsageError(f"wanted a stage, found {name!r}; stages are {', '.join(STAGES)}")
    first = STAGES.index(start) if start else 0
    last = STAGES.index(until) if until else len(STAGES) - 1
    if last < first:
        raise UsageError(f"wanted stages in order, found --from {start} --until {until}; {start} comes after {until}")
    return STAGES[first : last + 1]


def demand_earlier(record: Record, start: str | None) -> None:
    """Raises UsageError where a stage before `start` is not done."""
    for name in STAGES[: STAGES.index(start)] if start else ():
        state = stage(record, name).state
        if state not in GOOD:
            raise UsageError(f"{record.run.id}: {start} needs {name}, which is {state}; gangline run does both")
