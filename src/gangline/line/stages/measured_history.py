"""Measurements of earlier runs of a line, from a bounded number of records of its commit and ancestors.

An unavailable store does not fail a run: the history is empty then. A record that cannot be read is left out. Both are
named.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from gangline.errors import GanglineError, IntegrityError
from gangline.git.repository import Repository
from gangline.line.record.earlier_runs import reusable_runs
from gangline.line.record.runs import OnRefused
from gangline.spec.devices import other_kinds
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
    problem: str = ""
    """Why runs may be missing; empty if none are."""


def read_measured_history(
    store: ObjectStore, repository: Repository, *, project: str, commit: str, run: str
) -> MeasuredHistory:
    """History in at most 50 records of the last 50 commits up to `commit`, without `run` itself."""
    refused: list[str] = []

    def refuse(key: str, error: IntegrityError) -> None:
        refused.append(f"{key}: {error}")

    try:
        records = list(islice(_records(store, repository, project, commit, refuse), MAX_RECORDS + 1))
    except GanglineError as error:
        return MeasuredHistory(problem=f"earlier runs were not read: {error}")
    others = sorted(
        (record for record in records if record.run.id != run), key=lambda record: record.run.created, reverse=True
    )
    problem = f"earlier runs, {len(refused)} refused: {refused[0]}" if refused else ""
    return MeasuredHistory(measured(others[:MAX_RECORDS]), problem)


def measured(records: Iterable[Record]) -> tuple[MeasuredRun, ...]:
    """Measurements of the records that have any, in order."""
    return tuple(
        _measured(record, record.plan, record.plan.measured.step_seconds)
        for record in records
        if record.plan is not None and record.plan.measured.step_seconds is not None
    )


def _records(
    store: ObjectStore, repository: Repository, project: str, commit: str, on_refused: OnRefused
) -> Iterator[Record]:
    for each in (commit, *repository.ancestors(commit, MAX_COMMITS)):
        yield from reusable_runs(store, project, each, on_refused=on_refused)


def _measured(record: Record, plan: PlanInfo, step_seconds: float) -> MeasuredRun:
    return MeasuredRun(
        run=record.run.id,
        model=record.inputs.tables.get("model", ""),
        strategy=plan.strategy,  # type: ignore[arg-type]  # checked when the plan was made
        mesh=plan.mesh,
        device=plan.device,  # type: ignore[arg-type]  # likewise
        device_name=_device_name(record, plan),
        precision=plan.precision,  # type: ignore[arg-type]  # likewise
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch,
        step_seconds=step_seconds,
        peak_memory_bytes=plan.measured.memory_bytes,
        save_seconds=stage(record, "train").outputs.get("save_seconds"),
        train_seconds=plan.measured.wall_seconds or stage(record, "train").seconds,
        outside_seconds=_outside_seconds(record, plan, step_seconds),
        failures=_restarts_in_gangs(record),
        restart_seconds=_restart_seconds(record, plan.mesh.world_size),
        parts={term.part: term.seconds for term in plan.measured.terms},
        forecast=plan.forecast,
    )


def _outside_seconds(record: Record, plan: PlanInfo, step_seconds: float) -> float | None:
    steps = stage(record, "train").outputs.get("final_step")
    restarts = record.gang.restarts if record.gang is not None else 0
    if plan.measured.wall_seconds is None or not steps or restarts:
        return None
    saves = sum(term.seconds for term in plan.measured.terms if term.part == "checkpoint")
    return max(0.0, plan.measured.wall_seconds - float(steps) * (step_seconds + saves))


def _device_name(record: Record, plan: PlanInfo) -> str:
    """The planned kind, unless ranks found GPUs of another one."""
    gpus = record.ran.gpus if record.ran is not None else ()
    return " and ".join(gpus) if other_kinds(plan.device_name, gpus) else plan.device_name


def _restarts_in_gangs(record: Record) -> int:
    """Restarts by keepers: another gang may follow one that a person stopped, which is no failure."""
    gangs = int(stage(record, "train").outputs.get("attempts", 1))
    return max(0, record.gang.restarts - (gangs - 1)) if record.gang is not None else 0


_OF_A_FAILURE, _OF_A_GENERATION = ("stalled", "restart"), ("start", "rendezvous", "build", "resume")


def _restart_seconds(record: Record, ranks: int) -> float | None:
    """What the ledger booked for one restart: until it was noticed, and until a generation of ranks takes a step."""
    restarts = _restarts_in_gangs(record)
    if record.ledger is None or not restarts:
        return None
    seconds = record.ledger.seconds
    failed = sum(seconds.get(cause, 0.0) for cause in _OF_A_FAILURE) / restarts
    begun = sum(seconds.get(cause, 0.0) for cause in _OF_A_GENERATION) / (restarts + 1)
    return (failed + begun) / ranks
