"""What sets a run apart from its commit, so that no other run builds on it. Pure: read from its record."""

from gangline.spec.record import Record

UNDER_WAY = "under way"
"""Reason of a drill that has marked its run and not struck yet."""


def was_drilled(record: Record) -> bool:
    """Was a fault injected, or is one about to be? A drill that never struck changed nothing."""
    return any(each.result != "not_struck" or each.reason == UNDER_WAY for each in record.drills)


def is_experiment(record: Record) -> bool:
    """Were keys of the line set on the command line? Then it says nothing about its commit alone."""
    return bool(record.inputs.overrides)


def marks_of(record: Record) -> tuple[str, ...]:
    """`experiment`, `dirty`, `drilled`, as far as they hold: such a run is never a base and never published."""
    found = (
        ("experiment", is_experiment(record)),
        ("dirty", record.commit.patch is not None),
        ("drilled", was_drilled(record)),
    )
    return tuple(mark for mark, holds in found if holds)


def was_cut_short(record: Record) -> bool:
    """Did its training end before its schedule, as the line asked? Fit to be measured, for nothing else."""
    return record.inputs.values.get("train.stop_at") is not None
