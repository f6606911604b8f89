"""Measurements of earlier runs of a line, from records of its commit and of those before it, within bounds.

A store that is away, or a record that cannot be read, fails no run: nothing is known then, and the reason is given.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from gangline.errors import GanglineError
from gangline.git.repository import Repository
from gangline.line.record.earlier_runs import reusable_runs
from gangline.spec.profile import MeasuredRun
from gangline.spec.record import PlanInfo, Record
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import ObjectStore

MAX_COMMITS = 50
MAX_RECORDS = 50


@dataclass(frozen=True, slots=True)
class MeasuredHistory:
    """Runs that trained, newest first."""

    runs: tuple[MeasuredRun, ...] = ()
    trouble: str = ""
    """Why there may be more; empty: there are not, within bounds."""


def read_measured_history(
    store: ObjectStore, repository: Repository, *, project: str, commit: str, run: str
) -> MeasuredHistory:
    """Of at most 50 records of the last 50 commits up to `commit`, but for `run` itself."""
    try:
        found = list(islice(_records(store, repository, project, commit), MAX_RECORDS + 1))
    except GanglineError as error:
        return MeasuredHistory(trouble=f"earlier runs were not read: {error}")
    others = sorted((each for each in found if each.run.id != run), key=lambda each: each.run.created, reverse=True)
    return MeasuredHistory(measured(others[:MAX_RECORDS]))


def measured(past: Iterable[Record]) -> tuple[MeasuredRun, ...]:
    """What earlier runs measured on the plans they ran."""
    return tuple(
        _measured(record, record.plan, record.plan.measured.step_seconds)
        for record in past
        if record.plan is not None and record.plan.measured.step_seconds is not None
    )


def _records(store: ObjectStore, repository: Repository, project: str, commit: str) -> Iterator[Record]:
    for each in (commit, *repository.ancestors(commit, MAX_COMMITS)):
        yield from reusable_runs(store, project, each)


def _measured(record: Record, plan: PlanInfo, step_seconds: float) -> MeasuredRun:
    return MeasuredRun(
        run=record.run.id,
        model=record.inputs.tables.get("model", ""),
        strategy=plan.strategy,  # type: ignore[arg-type]  # a record keeps the word, the plan checked it
        mesh=plan.mesh,
        device=plan.device,  # type: ignore[arg-type]  # likewise
        device_name=plan.device_name,
        precision=plan.precision,  # type: ignore[arg-type]  # likewise
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch,
        step_seconds=step_seconds,
        peak_memory_bytes=plan.measured.memory_bytes,
        save_seconds=stage(record, "train").outputs.get("save_seconds"),
        train_seconds=plan.measured.wall_seconds or stage(record, "train").seconds,
        failures=record.gang.restarts if record.gang is not None else 0,
        parts={term.part: term.seconds for term in plan.measured.terms},
        forecast=plan.forecast,
    )
