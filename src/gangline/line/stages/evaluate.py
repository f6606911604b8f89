"""Stage evaluate: held-out metrics of the checkpoint and, if the line has seeds, the noise band they span."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gangline.errors import ConfigError
from gangline.launch.protocol import GangEvent
from gangline.line.gangs.attempts import FinishedGang, run_gang
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.states import stage_origin
from gangline.line.results import band, unreported_metrics
from gangline.line.results.ledger import failed_result, with_shares
from gangline.line.results.loss_curve import seed_values
from gangline.line.results.metrics_file import read_program_metrics, with_program_metrics
from gangline.line.results.outputs import read_outputs
from gangline.line.results.processes import joined_reports, with_processes
from gangline.line.results.published_weights import (
    EVALUATIONS,
    measured_alike,
    measured_on,
    published_weights,
    read_evaluations,
    weights_output,
)
from gangline.line.results.rank_environment import gang_environment
from gangline.line.results.serve_gate import SERVE_METRICS
from gangline.line.results.training_result import TrainingResult
from gangline.line.results.undeclared_reads import undeclared_reads_text, with_reads_of
from gangline.planner.plans import evaluate_plan, seed_plan
from gangline.registry.publish_rules import WEIGHTS
from gangline.spec.codec import digest
from gangline.spec.config.line import QualityGate
from gangline.spec.gang.status import GangResult, JobResult, WeightsEvaluation
from gangline.spec.measurements import Curve, Metric
from gangline.spec.program_files import RuntimeReport
from gangline.spec.record import UNDECLARED, Record
from gangline.spec.run_flags import NOT_FINITE, stage
from gangline.units import format_number

SHOWN = 3
"""Metrics in the stage's message, those with a gate first."""


def evaluate(ctx: RunContext) -> StageResult:
    """Raises the error of the gang's exit code, and ConfigError for a metric that the task does not return."""
    checkpoint = ctx.output("train", "checkpoint")
    key = digest([stage(ctx.record, "train").key, ctx.record.inputs.tables.get("evaluate"), ctx.record.inputs.seeds])
    if ctx.line.project.task is None:
        return _evaluate_program(ctx, key)
    if checkpoint is None:
        return StageResult(state="skipped", message="the program left no checkpoint to evaluate", key=key)
    if ctx.plan.federation is not None and ctx.plan.federation.is_data_of_members:
        return _evaluate_members(ctx, key)
    earlier = ctx.find_cached_stage("evaluate", key)
    if earlier is not None:
        return _taken(ctx, key, earlier)
    finished = run_gang(ctx, "evaluate", evaluate_plan(ctx.plan, ctx.record.inputs.seeds, str(checkpoint)))
    if finished.result is None:
        return failed_result(key, finished)
    metrics, curve = judge_metrics(ctx, finished.result), _with_seeds(ctx, finished.result)
    not_finite, ran = _not_finite(ctx, finished.result), _with_reads(ctx, finished)
    return StageResult(
        message=_message(metrics) + "".join(f" · {name} {what}" for name, what in not_finite.items()),
        key=key,
        outputs={NOT_FINITE: not_finite} if not_finite else {},
        change=lambda record: _record_metrics(ctx, replace(record, ran=ran), finished, metrics, curve),
    )


def _evaluate_members(ctx: RunContext, key: str) -> StageResult:
    """Metrics of the last round, in which members judged the final weights: no held-out data are here."""
    reported, step = ctx.output("train", "metrics") or {}, int(ctx.output("train", "final_step"))
    result = GangResult(final_step=step, jobs=(JobResult(seed=ctx.line.train.seed, step=step, metrics=reported),))
    metrics = judge_metrics(ctx, result)
    return StageResult(
        message=f"{_message(metrics)} · judged by members on their own held-out data", key=key,
        change=lambda record: replace(record, metrics=record.metrics | metrics),
    )  # fmt: skip


def _evaluate_program(ctx: RunContext, key: str) -> StageResult:
    """Metrics that a program reported itself; it is trained once more for each further seed of the line."""
    weights, evaluations = published_weights(ctx), read_evaluations(ctx.output("train", EVALUATIONS))
    of_weights = measured_on(weights, evaluations)
    reported = {**(ctx.output("train", "metrics") or {}), **(of_weights.metrics if of_weights else {})}
    outputs = {WEIGHTS: weights_output(ctx.line, weights, evaluations, {*reported, *ctx.record.metrics})}
    if weights is not None:
        key = digest([key, ctx.line.publish.files, ctx.line.project.metrics_of])
    not_finite = ctx.output("train", NOT_FINITE) or {}
    if missing := sorted(set(ctx.line.evaluate.metrics) - reported.keys() - TrainingResult.METRICS - not_finite.keys()):
        reason = unreported_metrics.missing_metric(missing[0], reported, unreported_metrics.form_of(ctx.record))
        raise ConfigError(f"line.toml: evaluate.metrics: {reason}")
    seeds = sorted(set(ctx.record.inputs.seeds) - {ctx.line.train.seed})
    if not reported and not (seeds and ctx.record.curve.points):
        return StageResult(state="skipped", message="the program reports no metrics", key=key, outputs=outputs)
    if seeds and (earlier := ctx.find_cached_stage("evaluate", key)):
        return _taken(ctx, key, earlier)
    finished = list(_train_seeds(ctx, seeds))
    if finished and finished[-1].error is not None:
        return failed_result(key, *finished, what=f"seed {finished[-1].plan.seed}")
    job = JobResult(seed=ctx.line.train.seed, step=int(ctx.output("train", "final_step")), metrics=reported)
    others = [_job_result(ctx, gang, of_weights) for gang in finished]
    result = GangResult(final_step=job.step, jobs=(job, *others))
    curve = _with_seeds(ctx, result)
    metrics = own_metrics(ctx, result)
    if of_weights is not None:
        metrics |= {name: replace(metrics[name], step=of_weights.step) for name in of_weights.metrics}
    message, ran = f"{_message(metrics)} · measured by the program itself", _with_reads(ctx, *finished)

    def change(record: Record) -> Record:
        return replace(
            record,
            metrics=record.metrics | metrics,
            curve=curve,
            ran=ran,
            ledger=with_shares(record, *finished),
            processes=with_processes(ctx, record, *finished),
        )

    return StageResult(message=message, key=key, change=change, outputs=outputs)


def _with_reads(ctx: RunContext, *finished: FinishedGang) -> RuntimeReport | None:
    """The report of the training's ranks, with what those of other gangs read."""
    trained = ran = ctx.record.ran
    for gang in finished:
        ran = with_reads_of(ran, gang_environment(ctx, gang, "evaluate"))
    known, text = (
        undeclared_reads_text(report, ctx.repository.work_tree) if report else "" for report in (trained, ran)
    )
    if text != known:
        ctx.record_event("evaluate", UNDECLARED, f"a rank {text}")
    return ran


def _train_seeds(ctx: RunContext, seeds: Sequence[int]) -> Iterator[FinishedGang]:
    """A gang for each seed, in order, until one fails; gangs that have ended are not trained again."""
    for chain, seed in enumerate(seeds, start=1):
        ctx.observer.note(f"seed {seed}: training {chain} of {len(seeds)} more, for the band")
        ctx.observer.progress("evaluate", _job_started(seed, chain, of=len(seeds) + 1, steps=ctx.plan.steps))
        finished = run_gang(ctx, "evaluate", seed_plan(ctx.plan, seed), chain=chain)
        yield finished
        if finished.error is not None:
            return


def _job_started(seed: int, chain: int, *, of: int, steps: int) -> GangEvent:
    """The event that a rank of a gang with several seeds would send: steps count from 1 again."""
    data = {"event": "job_started", "rank": 0, "seed": seed, "index": chain, "jobs": of, "steps": steps}
    return GangEvent(kind="progress", text="job_started", data=data)


def _job_result(ctx: RunContext, finished: FinishedGang, of_weights: WeightsEvaluation | None) -> JobResult:
    """Metrics of a seed, from the program's result or metrics file; empty if it writes neither.

    Where those of the run are `of_weights`, those of the seed are of its own files of these names.
    """
    seed, jobs = finished.plan.seed, finished.result.jobs if finished.result else ()
    job = next((job for job in jobs if job.seed == seed), JobResult(seed=seed, step=0))
    written = read_program_metrics(ctx, finished, read_outputs(ctx, finished))
    losses = job.losses or tuple(sorted(written.losses.items()))
    metrics = with_program_metrics(job.metrics, written) | measured_alike(of_weights, job.evaluations)
    return replace(job, metrics=metrics, losses=losses)


def _equal_metrics(ctx: RunContext, result: GangResult) -> set[str]:
    """Metrics with bitwise equal values for all seeds; for the curve's metric at all points."""
    first, *others = (job.metrics for job in result.jobs)
    if not others:
        return set()
    equal = {name for name, value in first.items() if all(other.get(name) == value for other in others)}
    curves = set(_with_seeds(ctx, result).seed_points.values())
    return equal if len(curves) <= 1 else equal - {ctx.record.curve.metric}


def _equal_sentence(ctx: RunContext, equal: set[str], result: GangResult) -> str:
    """Sentence about equal values; empty if no gate judges any of them (a parameter count, for example)."""
    seeds = " ".join(str(job.seed) for job in result.jobs)
    if equal and all(job.metrics.keys() == equal for job in result.jobs):
        return f"seeds {seeds} gave equal values: the program does not use its seed; the band is its floor only"
    if judged := sorted(equal & {gate.metric for gate in ctx.line.gate.quality}):
        return f"seeds {seeds} gave equal values of {', '.join(judged)}: the band is its floor only"
    return ""


def judge_metrics(ctx: RunContext, result: GangResult) -> dict[str, Metric]:
    """Each metric of the run's own seed, with the values of all seeds, the band they span and the base's.

    Raises:
        ConfigError: The line asks for a metric that the task does not return.
    """
    found = own_metrics(ctx, result)
    wanted = {*ctx.line.evaluate.metrics, *(gate.metric for gate in ctx.line.gate.quality)}
    if missing := sorted(wanted - found.keys() - TrainingResult.METRICS - _not_finite(ctx, result).keys()):
        raise ConfigError(
            f"line.toml: evaluate.metrics and gate.quality: wanted {', '.join(missing)},"
            f" the task returns {', '.join(sorted(found)) or 'none'}"
        )
    return found


def _not_finite(ctx: RunContext, result: GangResult) -> dict[str, str]:
    """Metrics of the run's own seed that are not finite."""
    return next((job.not_finite for job in result.jobs if job.seed == ctx.line.train.seed), {})


def own_metrics(ctx: RunContext, result: GangResult) -> dict[str, Metric]:
    """All metrics of the job with the run's own seed."""
    own = next((job for job in result.jobs if job.seed == ctx.line.train.seed), None)
    if own is None:
        return {}
    equal = _equal_metrics(ctx, result)
    if text := _equal_sentence(ctx, equal, result):
        ctx.record_event("evaluate", "seeds", text)
    return {name: _metric(ctx, name, own, result, equal=name in equal) for name in sorted(own.metrics)}


def _metric(ctx: RunContext, name: str, own: JobResult, result: GangResult, *, equal: bool) -> Metric:
    gate = _gate_of(ctx, name)
    floor = gate.floor_percent if gate else 0.1
    seeds = {str(job.seed): job.metrics[name] for job in result.jobs if name in job.metrics}
    learned = band.learn_band(list(seeds.values()), floor_percent=floor, origin=ctx.record.run.id)
    learned = replace(learned, equal=equal) if learned else None
    metric = Metric(
        value=own.metrics[name],
        unit=result.metric_units.get(name, ""),
        step=own.step,
        better=gate.better if gate else None,
        seeds=seeds,
        band=learned,
    )
    return compared_with_base(ctx, name, metric)


def compared_with_base(ctx: RunContext, name: str, metric: Metric) -> Metric:
    """`metric` with the base's value and the band that it is judged on.

    A gate's tolerance replaces the band. A base without a band of its own passes on the band it was judged by, but not
    a tolerance, which is centered on the value of one run.
    """
    base_metric = ctx.base.metrics.get(name) if ctx.base else None
    if ctx.base is None or base_metric is None:
        return replace(metric, base=None, base_band=None)
    gate = _gate_of(ctx, name)
    judged = base_metric.band or base_metric.base_band
    if gate is not None and gate.tolerance_percent is not None:
        judged = band.band_of_tolerance(base_metric.value, percent=gate.tolerance_percent, origin=ctx.base.run.id)
    elif judged is not None and judged.n < band.MIN_SEEDS:
        judged = None
    return replace(metric, better=gate.better if gate else metric.better, base=base_metric.value, base_band=judged)


def _gate_of(ctx: RunContext, name: str) -> QualityGate | None:
    return next((gate for gate in ctx.line.gate.quality if gate.metric == name), None)


def _record_metrics(
    ctx: RunContext, record: Record, finished: FinishedGang, metrics: Mapping[str, Metric], curve: Curve
) -> Record:
    return replace(
        record,
        metrics=record.metrics | dict(metrics),
        curve=curve,
        ledger=with_shares(record, finished),
        processes=with_processes(ctx, record, finished),
    )


def _with_seeds(ctx: RunContext, result: GangResult) -> Curve:
    """The run's curve with those of the seeds trained here."""
    curve, table = ctx.record.curve, ctx.line.train
    steps = max(table.steps, ctx.output("train", "final_step") or 0)
    trained = {str(job.seed): seed_values(job.losses, curve, steps=steps) for job in result.jobs if job.losses}
    if not trained:
        return curve
    own = {str(table.seed): tuple(point.value for point in curve.points)}
    return replace(curve, seed_points=own | trained)


def _taken(ctx: RunContext, key: str, earlier: Record) -> StageResult:
    names = earlier.metrics.keys() - TrainingResult.METRICS - SERVE_METRICS

    metrics = {name: compared_with_base(ctx, name, earlier.metrics[name]) for name in sorted(names)}

    def change(record: Record) -> Record:
        curve = replace(record.curve, seed_points=earlier.curve.seed_points)
        processes = joined_reports(record.processes, earlier.processes)
        return replace(record, metrics=record.metrics | metrics, curve=curve, processes=processes)

    origin = stage_origin(earlier, "evaluate")
    message = f"{_message(metrics)} · taken from {origin}"
    outputs = stage(earlier, "evaluate").outputs
    return StageResult(state="taken", message=message, key=key, taken_from=origin, change=change, outputs=outputs)


def _message(metrics: Mapping[str, Metric]) -> str:
    if not metrics:
        return "no metrics are reported"
    first = sorted(metrics.items(), key=lambda item: item[1].better is None)
    parts = [f"{name} {format_number(metric.value)}" for name, metric in first[:SHOWN]]
    if len(first) > SHOWN:
        parts.append(f"{len(first) - SHOWN} more")
    learned = next(((name, metric, metric.band) for name, metric in first if metric.band), None)
    if learned is not None:
        name, metric, spread = learned
        percent = abs(spread.half / spread.center) * 100 if spread.center else 0.0
        whose = f" of {name}" if len(first) > 1 else ""
        parts.append(f"seeds {' '.join(metric.seeds)}: band{whose} {format_number(spread.center)} ± {percent:.1f} %")
    return " · ".join(parts)
