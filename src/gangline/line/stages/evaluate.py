"""evaluate: held-out metrics of the checkpoint and, where the line asks for seeds, the band they span."""

from collections.abc import Mapping
from dataclasses import replace

from gangline.errors import ConfigError
from gangline.line import band, reporting
from gangline.line.context import Context, StageResult
from gangline.line.cost import failed, with_shares
from gangline.line.course import Course
from gangline.line.curve import seed_values
from gangline.line.gangs import Finished, run_to_end
from gangline.line.states import stage
from gangline.line.taken import find_donor, origin
from gangline.planner.assemble import evaluate_plan
from gangline.spec.codec import digest
from gangline.spec.gang import GangResult, JobResult
from gangline.spec.line import QualityGate
from gangline.spec.measured import Curve, Metric
from gangline.spec.record import Record
from gangline.units import format_number

SHOWN = 3
"""Metrics in the line that the user sees, those with a gate first."""


def evaluate(ctx: Context) -> StageResult:
    """Raises what the gang's exit code names, and ConfigError for a metric that the task does not return."""
    checkpoint = ctx.output("train", "checkpoint")
    key = digest([stage(ctx.record, "train").key, ctx.record.inputs.tables.get("evaluate"), ctx.record.inputs.seeds])
    if ctx.line.project.task is None:
        return _by_itself(ctx, key)
    if checkpoint is None:
        return StageResult(state="skipped", message="the program left no checkpoint to evaluate", key=key)
    donor = find_donor(ctx, "evaluate", key)
    if donor is not None:
        return _taken(ctx, key, donor)
    finished = run_to_end(ctx, "evaluate", evaluate_plan(ctx.plan, ctx.record.inputs.seeds, str(checkpoint)))
    if finished.result is None:
        return failed(key, finished)
    metrics = judge_metrics(ctx, finished.result)
    return StageResult(
        message=_message(metrics),
        key=key,
        change=lambda record: _learn(record, finished, metrics),
    )


def _by_itself(ctx: Context, key: str) -> StageResult:
    """A program of the user's own is not started again: what it reported at its end counts."""
    reported = dict(ctx.output("train", "metrics") or {})
    if missing := sorted(set(ctx.line.evaluate.metrics) - reported.keys() - Course.METRICS):
        said = reporting.missing_metric(missing[0], reported, reporting.form_of(ctx.record))
        raise ConfigError(f"line.toml: evaluate.metrics: {said}")
    if not reported:
        return StageResult(state="skipped", message="the program reports no metrics", key=key)
    job = JobResult(seed=ctx.line.train.seed, step=int(ctx.output("train", "final_step")), metrics=reported)
    metrics = own_metrics(ctx, GangResult(final_step=job.step, jobs=(job,)))
    message = f"{_message(metrics)} · measured by the program itself"
    return StageResult(
        message=message, key=key, change=lambda record: replace(record, metrics=record.metrics | metrics)
    )


def judge_metrics(ctx: Context, result: GangResult) -> dict[str, Metric]:
    """Each metric of the run's own seed, with the values of all seeds, the band they span and the base's.

    Raises:
        ConfigError: The line asks for a metric that the task does not return.
    """
    found = own_metrics(ctx, result)
    wanted = {*ctx.line.evaluate.metrics, *(gate.metric for gate in ctx.line.gate.quality)}
    if missing := sorted(wanted - found.keys() - Course.METRICS):
        raise ConfigError(
            f"line.toml: evaluate.metrics and gate.quality: wanted {', '.join(missing)},"
            f" the task returns {', '.join(sorted(found)) or 'none'}"
        )
    return found


def own_metrics(ctx: Context, result: GangResult) -> dict[str, Metric]:
    """What the job of the run's own seed reported, whoever asks for it."""
    own = next((job for job in result.jobs if job.seed == ctx.line.train.seed), None)
    return {name: _metric(ctx, name, own, result) for name in sorted(own.metrics)} if own else {}


def _metric(ctx: Context, name: str, own: JobResult, result: GangResult) -> Metric:
    gate = _gate_of(ctx, name)
    floor = gate.floor_percent if gate else 0.1
    seeds = {str(job.seed): job.metrics[name] for job in result.jobs if name in job.metrics}
    learned = band.learn(list(seeds.values()), floor_percent=floor, origin=ctx.record.run.id)
    metric = Metric(
        value=own.metrics[name],
        unit=result.metric_units.get(name, ""),
        step=own.step,
        better=gate.better if gate else None,
        seeds=seeds,
        band=learned,
    )
    return beside_base(ctx, name, metric)


def beside_base(ctx: Context, name: str, metric: Metric) -> Metric:
    """`metric` with the base's value and the band that it is judged on.

    A gate's tolerance stands instead of the band. A base that learned none hands on the band it was judged by, but no
    tolerance: that lies around the value of one run.
    """
    standing = ctx.base.metrics.get(name) if ctx.base else None
    if ctx.base is None or standing is None:
        return replace(metric, base=None, base_band=None)
    gate = _gate_of(ctx, name)
    judged = standing.band or standing.base_band
    if gate is not None and gate.tolerance_percent is not None:
        judged = band.tolerated(standing.value, percent=gate.tolerance_percent, origin=ctx.base.run.id)
    elif judged is not None and judged.n < band.MIN_SEEDS:
        judged = None
    return replace(metric, better=gate.better if gate else metric.better, base=standing.value, base_band=judged)


def _gate_of(ctx: Context, name: str) -> QualityGate | None:
    return next((each for each in ctx.line.gate.quality if each.metric == name), None)


def _learn(record: Record, finished: Finished, metrics: Mapping[str, Metric]) -> Record:
    assert finished.result is not None, finished.name
    return replace(
        record,
        metrics=record.metrics | dict(metrics),
        curve=_with_seeds(record.curve, finished),
        ledger=with_shares(record, finished),
    )


def _with_seeds(curve: Curve, finished: Finished) -> Curve:
    """Curves of the seeds that this gang trained, beside the run's own."""
    assert finished.result is not None, finished.name
    steps = finished.plan.steps
    trained = {str(job.seed): seed_values(job.losses, steps) for job in finished.result.jobs if job.losses}
    if not trained:
        return curve
    own = {str(finished.plan.seed): tuple(point.value for point in curve.points)}
    return replace(curve, seed_points=own | trained)


def _taken(ctx: Context, key: str, donor: Record) -> StageResult:
    names = donor.metrics.keys() - Course.METRICS

    metrics = {name: beside_base(ctx, name, donor.metrics[name]) for name in sorted(names)}

    def change(record: Record) -> Record:
        curve = replace(record.curve, seed_points=donor.curve.seed_points)
        return replace(record, metrics=record.metrics | metrics, curve=curve)

    where = origin(donor, "evaluate")
    message = f"{_message(metrics)} · taken from {where}"
    return StageResult(state="taken", message=message, key=key, taken_from=where, change=change)


def _message(metrics: Mapping[str, Metric]) -> str:
    if not metrics:
        return "the task returns no metrics"
    first = sorted(metrics.items(), key=lambda item: item[1].better is None)
    parts = [f"{name} {format_number(metric.value)}" for name, metric in first[:SHOWN]]
    if len(first) > SHOWN:
        parts.append(f"{len(first) - SHOWN} more")
    learned = next(((name, metric) for name, metric in metrics.items() if metric.band), None)
    if learned is not None and learned[1].band is not None:
        spread = learned[1].band
        percent = abs(spread.half / spread.center) * 100 if spread.center else 0.0
        parts.append(
            f"seeds {' '.join(learned[1].seeds)} in one gang: band {format_number(spread.center)} ± {percent:.1f} %"
        )
    return " · ".join(parts)
