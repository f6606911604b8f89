"""Result of a training, read from the store after its end: losses, times by rank, memory, throughput, diagnoses."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from math import isfinite, nan
from statistics import median
from typing import Any, ClassVar

from gangline.checkpoint.format.manifest import MANIFEST, MAX_MANIFEST_BYTES, list_checkpoints, verify_manifest
from gangline.errors import IntegrityError, StorageError
from gangline.fabric.probe.telemetry import diagnose_slow_ranks, diagnose_stages
from gangline.line.gangs import launchers
from gangline.line.gangs.attempts import EVENTS, METRICS, FinishedGang, attempt_files, attempt_key
from gangline.line.record.context import RunContext
from gangline.line.request.trust import checkpoint_owner
from gangline.line.results.bound import ShardReads, diagnose_bound
from gangline.line.results.loss_curve import build_curve, by_step, each_line, final_loss, join_broken, losses_of
from gangline.line.results.metrics_file import MetricsFile
from gangline.line.results.profiles import profile_artifacts
from gangline.line.results.rank_times import read_parts, read_ranks, read_save_seconds
from gangline.line.results.training_summary import read_federation, read_training
from gangline.metrics.step_table import StepTable, drop_from, finite, step_of
from gangline.planner.plans import worker_plans
from gangline.spec.federated import FederationResult
from gangline.spec.forecast import Forecast, Term
from gangline.spec.gang.status import read_event
from gangline.spec.measurements import Curve, Diagnosis, Metric, RankRow, Training
from gangline.spec.output_limits import MOST_EVENT_BYTES, MOST_METRIC_BYTES, MOST_STEPS
from gangline.spec.plan import Plan
from gangline.spec.program_files import SAVE_KIND
from gangline.spec.record import Artifact
from gangline.storage.objects.growing_file import GrowingFile, find_growing_file, join_parts, put_blocks
from gangline.storage.objects.protocol import ObjectStore, get_bounded

_NUMBERS = frozenset({"loss", "tokens_per_second", "mfu", "step_seconds", "flops_per_second"})
"""Numbers of metrics.jsonl that a record uses."""
MOST_PEERS = 8
"""Other ranks that are read for steps that rank 0 could not report before it was killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """Measurements of a finished training gang."""

    METRICS: ClassVar[frozenset[str]] = frozenset(
        {"loss", "mfu", "tokens_per_second", "step_seconds", "memory_peak_bytes"}
    )

    final_step: int
    not_finite: Mapping[str, str]
    """`loss`, if that of the last step was not finite."""
    losses: Mapping[int, float]
    curve: Curve
    ranks: tuple[RankRow, ...]
    diagnoses: tuple[Diagnosis, ...]
    metrics: Mapping[str, Metric]
    training: Training
    federation: FederationResult | None
    """None: the ranks of the gang trained."""
    measured: Forecast
    save_seconds: float | None
    """Mean time for which one save blocked training."""
    artifacts: tuple[Artifact, ...]


def read_training_result(ctx: RunContext, finished: FinishedGang, *, written: MetricsFile) -> TrainingResult:
    """Everything that the train stage records; losses of the metrics file count if none were reported otherwise."""
    plan = finished.plan
    rows, file = read_metrics(ctx, plan, finished.attempts)
    losses, broken = losses_of(rows), [step for step, loss in rows.column("loss") if not isfinite(loss)]
    if not losses and not broken:
        losses, broken = written.losses, written.broken
    elif written.losses:
        ctx.record_event(
            "train", "metrics", "losses by step come both from program.step and from project.metrics: the first count"
        )
    base = ctx.base
    curve = build_curve(
        losses,
        steps=max(plan.steps, max(losses, default=0)),
        base=base.curve if base else None,
        floor_percent=min((gate.floor_percent for gate in ctx.line.gate.quality), default=0.1),
        origin=base.run.id if base else "",
    )
    ranks = read_ranks(ctx.store, plan.output_prefix, world_size=plan.world_size)
    final_step = finished.result.final_step if finished.result else max(losses or rows, default=0)
    training = replace(_training(ctx, finished), flops_per_second=_median(rows, "flops_per_second"))
    measured = replace(
        _measure(ctx, finished, rows, ranks), wire_bytes=training.wire_bytes_per_step, terms=_terms(ctx, plan)
    )
    return TrainingResult(
        final_step=final_step,
        not_finite=_not_finite(rows),
        losses=losses,
        curve=replace(curve, broken=join_broken(broken, losses), key=file.key if file else None),
        ranks=ranks,
        diagnoses=read_diagnoses(ctx, finished, ranks),
        metrics=_metrics(rows, losses, measured),
        training=training,
        federation=_federation(ctx, finished),
        measured=measured,
        save_seconds=read_save_seconds(ctx.store, plan.output_prefix),
        artifacts=(
            *_metrics_artifact(file),
            *_checkpoint(ctx, finished),
            *_save(ctx, finished),
            *_profiles(ctx, plan),
        ),
    )


def read_metrics(ctx: RunContext, plan: Plan, attempts: int) -> tuple[StepTable, GrowingFile | None]:
    """metrics.jsonl of all attempts, by step, and the file, which this joins into one object in the store.

    Raises:
        IntegrityError: It has too many bytes or steps.
    """
    key = attempt_key(plan, METRICS)
    files = attempt_files(ctx.store, plan, METRICS, attempts, most_bytes=MOST_METRIC_BYTES)
    join_parts(ctx.store, key)
    if len(files) > 1:
        put_blocks(ctx.store, key, _last_lines(files))
    file = find_growing_file(ctx.store, key)
    return by_step(map(_with_nan, each_line(file or ())), names=_NUMBERS), file


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    """Ranks write null for a loss that is not finite."""
    return row | {"loss": nan} if row.get("loss", 0) is None else row


def _last_lines(files: Sequence[GrowingFile]) -> Iterator[bytes]:
    """The last line of each step, of all attempts and in the order of the files, as `StepTable` takes rows."""
    steps, numbers = array("q"), array("q")
    for number, line in enumerate(chain.from_iterable(files)):
        if (row := read_event(line)) is not None and (step := step_of(row)) is not None:
            drop_from(step, steps, numbers)
            steps.append(step)
            numbers.append(number)
        if len(steps) > MOST_STEPS:
            raise IntegrityError(f"{files[-1].key}: wanted at most {MOST_STEPS} steps, found more")
    remaining = numbers[::-1]
    del steps, numbers
    for number, line in enumerate(chain.from_iterable(files)):
        if remaining and remaining[-1] == number:
            remaining.pop()
            yield line if line.endswith(b"\n") else line + b"\n"


def _training(ctx: RunContext, finished: FinishedGang) -> Training:
    """Summary from the events of rank 0; empty if they are too many or invalid, which does not fail the run."""
    plan = finished.plan
    try:
        files = attempt_files(ctx.store, plan, EVENTS, finished.attempts, most_bytes=MOST_EVENT_BYTES)
        return read_training(files, peers=_peers(ctx.store, plan))
    except IntegrityError as error:
        ctx.record_event("train", "events", f"not read: {error}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        ctx.record_event(
            "train", "events", f"{attempt_key(plan, EVENTS)} has no valid sequence of events: {error!r:.200}"
        )
    return Training()


def _federation(ctx: RunContext, finished: FinishedGang) -> FederationResult | None:
    """What the federation of the plan did; None: it has none, or its events are too many."""
    plan = finished.plan
    if plan.federation is None:
        return None
    try:
        files = attempt_files(ctx.store, plan, EVENTS, finished.attempts, most_bytes=MOST_EVENT_BYTES)
        return read_federation(files, plan.federation, rounds=plan.rounds)
    except IntegrityError as error:
        ctx.record_event("train", "events", f"not read: {error}")
        return None


def _peers(store: ObjectStore, plan: Plan) -> Iterator[GrowingFile]:
    """Events of a few other ranks, those of the last nodes first."""
    for rank in range(plan.world_size - 1, max(0, plan.world_size - 1 - MOST_PEERS), -1):
        file = find_growing_file(store, f"{plan.output_prefix}/ranks/{rank}.jsonl")
        if file is not None:
            file.demand(MOST_EVENT_BYTES)
            yield file


def _profiles(ctx: RunContext, plan: Plan) -> tuple[Artifact, ...]:
    artifacts, left_out = profile_artifacts(ctx.store, plan.output_prefix)
    if left_out:
        ctx.record_event("train", "profiles", f"{len(left_out)} files left out: {left_out[0]}")
    return artifacts


def _not_finite(rows: StepTable) -> dict[str, str]:
    """Metrics of the last step that are not finite."""
    if not rows or "loss" not in rows.names or finite(rows.value("loss", max(rows))) is not None:
        return {}
    return {"loss": "nan or infinite"}


def _metrics(rows: StepTable, losses: Mapping[int, float], measured: Forecast) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    if (final := final_loss(losses)) is not None:
        found["loss"] = Metric(value=final[1], step=final[0], better="lower")
    if speed := _median(rows, "tokens_per_second"):
        found["tokens_per_second"] = Metric(value=speed, unit="1/s", better="higher")
    if share := _median(rows, "mfu"):
        found["mfu"] = Metric(value=share, better="higher")
    if measured.step_seconds is not None:
        found["step_seconds"] = Metric(value=measured.step_seconds, unit="s", better="lower")
    if measured.memory_bytes is not None:
        found["memory_peak_bytes"] = Metric(value=float(measured.memory_bytes), unit="B", better="lower")
    return found


def _median(rows: StepTable, name: str) -> float | None:
    """Median over the steps that have `name`; None if none has."""
    values = array("d", (value for _, value in rows.column(name) if value and isfinite(value)))
    return median(values) if values else None


def _measure(ctx: RunContext, finished: FinishedGang, rows: StepTable, ranks: tuple[RankRow, ...]) -> Forecast:
    """The measured values of what the plan forecast."""
    num_timed = sum(1 for _, seconds in rows.column("step_seconds") if seconds and isfinite(seconds))
    allocated = sum(share.allocated for share in finished.shares)
    gpus = finished.plan.device == "cuda"
    return Forecast(
        parameters=ctx.plan.forecast.parameters,
        memory_bytes=max((row.peak_memory_bytes for row in ranks if row.peak_memory_bytes), default=None),
        step_seconds=_median(rows, "step_seconds"),
        wall_seconds=allocated / (finished.num_ranks or finished.plan.world_size) if allocated else None,
        gpu_hours=allocated / 3600 if gpus else None,
        origin=f"measured n={num_timed}" if num_timed else "unknown",
    )


def _terms(ctx: RunContext, plan: Plan) -> tuple[Term, ...]:
    """Parts of a step. A GPU works asynchronously to the host that measures, so only its whole step is known."""
    if plan.device == "cuda":
        return ()
    parts = read_parts(ctx.store, plan.output_prefix, world_size=plan.world_size)
    return tuple(Term(part=part, seconds=seconds, origin="measured") for part, seconds in parts.items())


def _checkpoint(ctx: RunContext, finished: FinishedGang) -> tuple[Artifact, ...]:
    """The checkpoint that the gang reports, verified to be of this run and plan; the record pins it by digest."""
    prefix = finished.result.checkpoint if finished.result else None
    if prefix is None:
        return ()
    key = f"{prefix}/{MANIFEST}"
    blob = get_bounded(ctx.store, key, most_bytes=MAX_MANIFEST_BYTES)
    if blob is None:
        raise StorageError(f"wanted {key}, which the gang reports as written, found nothing; is this the same store?")
    owner = checkpoint_owner(ctx.record)
    manifest = verify_manifest(blob.data, launchers.checkpoint_key(ctx.site, ctx.environ, owner))
    plans = {plan.at(size).digest for plan in (ctx.plan, finished.plan) for size in _world_sizes(plan)}
    plans |= {plan.digest for plan in worker_plans(ctx.plan)}
    if manifest.run != ctx.record.run.id or manifest.plan_sha256 not in plans:
        raise IntegrityError(
            f"{key}: wanted a checkpoint of {ctx.record.run.id} under its plan, found one of {manifest.run} under plan"
            f" {manifest.plan_sha256[:12]}; gangline run --again trains again"
        )
    digest = sha256(blob.data).hexdigest()
    return (
        Artifact(kind="checkpoint", key=key, media_type="application/json", size_bytes=len(blob.data), sha256=digest),
    )


def _save(ctx: RunContext, finished: FinishedGang) -> tuple[Artifact, ...]:
    """The newest save of a program that is signed and of this run and plan; others are skipped and noted."""
    if ctx.line.project.task is not None or finished.error is not None:
        return ()
    key = launchers.checkpoint_key(ctx.site, ctx.environ, checkpoint_owner(ctx.record))
    plans = {plan.at(size).digest for plan in (ctx.plan, finished.plan) for size in _world_sizes(plan)}
    for checkpoint in list_checkpoints(ctx.store, f"{finished.plan.own_prefix}/program"):
        try:
            blob = get_bounded(ctx.store, checkpoint.manifest_key, most_bytes=MAX_MANIFEST_BYTES)
            manifest = verify_manifest(blob.data if blob else b"", key)
        except IntegrityError as error:
            ctx.record_event("train", SAVE_KIND, f"{checkpoint.prefix} is not used: {error}")
            continue
        if blob is None or manifest.run != ctx.record.run.id or manifest.plan_sha256 not in plans:
            ctx.record_event("train", SAVE_KIND, f"{checkpoint.prefix} is not used: it is of another run or plan")
            continue
        digest, size = sha256(blob.data).hexdigest(), len(blob.data)
        return (
            Artifact(
                kind=SAVE_KIND,
                key=checkpoint.manifest_key,
                media_type="application/json",
                size_bytes=size,
                sha256=digest,
            ),
        )
    return ()


def _world_sizes(plan: Plan) -> set[int]:
    """World sizes that a gang of `plan` may have had."""
    return {plan.world_size, *(size.mesh.world_size for size in plan.sizes)}


def _metrics_artifact(file: GrowingFile | None) -> tuple[Artifact, ...]:
    if file is None or not file.size_bytes:
        return ()
    digest, size = sha256(), 0
    for _, data in file.pieces():
        digest.update(data)
        size += len(data)
    return (
        Artifact(
            kind="metrics", key=file.key, media_type="application/jsonl", size_bytes=size, sha256=digest.hexdigest()
        ),
    )


MOST_DIAGNOSES = 16


def read_diagnoses(ctx: RunContext, finished: FinishedGang, ranks: Sequence[RankRow]) -> tuple[Diagnosis, ...]:
    """What bounds the training, then the costliest first; of a gang whose waits are not measured the bound alone."""
    plan, events = finished.plan, list[GrowingFile]()
    with suppress(IntegrityError):  # too many events: the summary of the training says so
        events = attempt_files(ctx.store, plan, EVENTS, finished.attempts, most_bytes=MOST_EVENT_BYTES)[-1:]
    totals = [(row.phases, sum(row.phases.values())) for row in ranks]
    shares = [{phase: each / total for phase, each in phases.items()} for phases, total in totals if total]
    bound = diagnose_bound(
        shares, source=plan.data, measures_waits=plan.device != "cuda",
        reads=ShardReads.of(chain.from_iterable(map(each_line, events))),
    )  # fmt: skip
    if plan.device == "cuda":
        return bound
    nodes = {row.rank: row.node for row in ranks if row.node}
    slow = diagnose_slow_ranks(
        chain.from_iterable(map(each_line, events)), mesh=plan.mesh, global_batch=plan.global_batch, nodes=nodes,
        weighs_samples=not plan.averages_rarely,
    )  # fmt: skip
    return (*bound, *slow, *diagnose_stages(ranks, mesh=plan.mesh))[:MOST_DIAGNOSES]
