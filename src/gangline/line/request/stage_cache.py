"""Reuse of a stage: the result of a stage with the same key in a run of this commit or of an ancestor."""

from gangline.line.record.context import RunContext
from gangline.spec.record import Record
from gangline.spec.run_flags import stage


def find_cached_stage(ctx: RunContext, name: str, key: str) -> Record | None:
    """A record whose stage `name` has this key and a result; none for a run that was asked for anew."""
    if ctx.record.run.attempt > 1:
        return None
    for donor in ctx.earlier_runs.reusable:
        info = stage(donor, name)
        if info.key == key and info.state in {"done", "taken"}:
            return donor
    return None


def origin(donor: Record, name: str) -> str:
    """The run that did the work, however often it was taken since."""
    return stage(donor, name).taken_from or donor.run.id
