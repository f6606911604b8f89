"""What a training left in the store, read after its end: losses by step, times by rank, memory, throughput."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import median
from typing import Any, ClassVar

from gangline.errors import StorageError
from gangline.line.context import Context
from gangline.line.curve import by_step, draw, losses_of, read_lines
from gangline.line.gangs import EVENTS, METRICS, Finished, attempt_key, attempt_texts, role_prefix
from gangline.line.profiles import profile_artifacts
from gangline.line.rank_rows import read_parts, read_ranks, read_save_seconds
from gangline.line.training import read_training
from gangline.spec.codec import canonical
from gangline.spec.forecast import Forecast, Term
from gangline.spec.measured import Curve, Metric, RankRow, Training
from gangline.spec.plan import Plan
from gangline.spec.record import Artifact
from gangline.storage.growing import join_parts, read_grown
from gangline.storage.protocol import ObjectStore

MOST_PEERS = 8
"""Asked what rank 0 was killed before it told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What a finished gang measured on its way."""

    METRICS: ClassVar[frozenset[str]] = frozenset(
        {"loss", "mfu", "tokens_per_second", "step_seconds", "memory_peak_bytes"}
    )

    final_step: int
    losses: Mapping[int, float]
    curve: Curve
    ranks: tuple[RankRow, ...]
    metrics: Mapping[str, Metric]
    training: Training
    measured: Forecast
    save_seconds: float | None
    """Training stood still so long for one save, on average."""
    artifacts: tuple[Artifact, ...]


def read_course(ctx: Context, finished: Finished) -> Course:
    """Everything that the train stage records."""
    plan = finished.plan
    rows, text = read_metrics(ctx, plan, finished.attempts)
    losses = losses_of(rows)
    base = ctx.base
    curve = draw(
        losses,
        steps=plan.steps,
        base=base.curve if base else None,
        floor_percent=_floor(ctx),
        origin=base.run.id if base else "",
    )
    ranks = read_ranks(ctx.store, role_prefix(plan), world_size=plan.world_size)
    final_step = finished.result.final_step if finished.result else max(rows, default=0)
    key = attempt_key(plan, METRICS)
    metrics = _artifact(key, text) if text else ()
    training = read_training(
        attempt_texts(ctx.store, plan, EVENTS, finished.attempts), peers=_peers(ctx.store, plan),
        flops_per_second=_median(rows, "flops_per_second"),
    )  # fmt: skip
    measured = replace(
        _measure(ctx, finished, rows, ranks), wire_bytes=training.wire_bytes_per_step, terms=_terms(ctx, plan)
    )
    return Course(
        final_step=final_step,
        losses=losses,
        curve=Curve(points=curve.points, key=key if text else None),
        ranks=ranks,
        metrics=_metrics(rows, curve, measured),
        training=training,
        measured=measured,
        save_seconds=read_save_seconds(ctx.store, role_prefix(plan)),
        artifacts=(*metrics, *_checkpoint(ctx, finished), *profile_artifacts(ctx.store, role_prefix(plan))),
    )


def read_metrics(ctx: Context, plan: Plan, attempts: int) -> tuple[dict[int, Mapping[str, Any]], bytes]:
    """metrics.jsonl of all attempts, by step, and its text, which the store has as one object from here on."""
    key = attempt_key(plan, METRICS)
    join_parts(ctx.store, key)
    texts = attempt_texts(ctx.store, plan, METRICS, attempts)
    rows = by_step(read_lines(b"\n".join(texts)))
    if len(texts) <= 1:
        return rows, b"".join(texts)
    whole = b"".join(canonical(row) + b"\n" for row in rows.values())
    ctx.store.put(key, whole)
    return rows, whole


def _peers(store: ObjectStore, plan: Plan) -> Iterator[bytes]:
    """What ranks beside rank 0 told, those of other nodes first; of a large gang a few."""
    for rank in range(plan.world_size - 1, max(0, plan.world_size - 1 - MOST_PEERS), -1):
        text = read_grown(store, f"{role_prefix(plan)}/ranks/{rank}.jsonl")
        if text is not None:
            yield text


def _floor(ctx: Context) -> float:
    return min((gate.floor_percent for gate in ctx.line.gate.quality), default=0.1)


def _metrics(rows: Mapping[int, Mapping[str, Any]], curve: Curve, measured: Forecast) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    if curve.points:
        last = curve.points[-1]
        found["loss"] = Metric(value=last.value, step=last.step, better="lower")
    if speed := _median(rows, "tokens_per_second"):
        found["tokens_per_second"] = Metric(value=speed, unit="1/s", better="higher")
    if share := _median(rows, "mfu"):
        found["mfu"] = Metric(value=share, better="higher")
    if measured.step_seconds is not None:
        found["step_seconds"] = Metric(value=measured.step_seconds, unit="s", better="lower")
    if measured.memory_bytes is not None:
        found["memory_peak_bytes"] = Metric(value=float(measured.memory_bytes), unit="B", better="lower")
    return found


def _median(rows: Mapping[int, Mapping[str, Any]], name: str) -> float | None:
    """Over the steps that have it; None: none has."""
    found = [float(row[name]) for row in rows.values() if row.get(name)]
    return median(found) if found else None


def _measure(
    ctx: Context, finished: Finished, rows: Mapping[int, Mapping[str, Any]], ranks: tuple[RankRow, ...]
) -> Forecast:
    """What the forecast said, as it came."""
    seconds = [float(row["step_seconds"]) for row in rows.values() if row.get("step_seconds")]
    allocated = sum(share.allocated for share in finished.shares)
    gpus = finished.plan.device == "cuda"
    return Forecast(
        parameters=ctx.plan.forecast.parameters,
        memory_bytes=max((row.peak_memory_bytes for row in ranks if row.peak_memory_bytes), default=None),
        step_seconds=median(seconds) if seconds else None,
        wall_seconds=allocated / finished.plan.world_size if allocated else None,
        gpu_hours=allocated / 3600 if gpus else None,
        origin=f"measured n={len(seconds)}" if seconds else "unknown",
    )


def _terms(ctx: Context, plan: Plan) -> tuple[Term, ...]:
    """Parts of the step. A GPU computes beside the host whose clock this is: of it only the whole step is known."""
    if plan.device == "cuda":
        return ()
    parts = read_parts(ctx.store, role_prefix(plan), world_size=plan.world_size)
    return tuple(Term(part=part, seconds=seconds, origin="measured") for part, seconds in parts.items())


def _checkpoint(ctx: Context, finished: Finished) -> tuple[Artifact, ...]:
    prefix = finished.result.checkpoint if finished.result else None
    if prefix is None:
        return ()
    key = f"{prefix}/manifest.json"
    blob = ctx.store.get(key)
    if blob is None:
        raise StorageError(f"wanted {key}, which the gang says it wrote, found nothing; is this the same store?")
    return _artifact(key, blob.data, kind="checkpoint", media_type="application/json")


def _artifact(
    key: str, data: bytes, *, kind: str = "metrics", media_type: str = "application/jsonl"
) -> tuple[Artifact, ...]:
    digest = sha256(data).hexdigest()
    return (Artifact(kind=kind, key=key, media_type=media_type, size_bytes=len(data), sha256=digest),)
