"""Stage train: follows the gang to its end and reads its results: checkpoint, curve, rank times, ledger."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from gangline.build.code_layer import LayerSelection
from gangline.errors import ConfigError
from gangline.line.gangs.attempts import FinishedGang
from gangline.line.gangs.federation import carried
from gangline.line.gangs.many import run_gangs
from gangline.line.gangs.missed_inputs import files_left_out, search_text
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.states import stage_origin
from gangline.line.results import ledger, unreported_metrics
from gangline.line.results.metrics_file import (
    MetricsFile,
    metrics_writers_text,
    read_program_metrics,
    with_program_metrics,
)
from gangline.line.results.outputs import CollectedOutputs, read_outputs
from gangline.line.results.processes import read_processes, record_failed_processes
from gangline.line.results.published_weights import EVALUATIONS
from gangline.line.results.rank_environment import gang_environment, work_tree_error
from gangline.line.results.rank_metrics import differing_metrics_text, reporting_processes_text
from gangline.line.results.training_result import TrainingResult, read_training_result
from gangline.line.results.undeclared_reads import reuse_text, undeclared_reads_text
from gangline.line.results.workers import read_workers
from gangline.line.stages.submit import find_training, train_key, with_gang
from gangline.sanitize import clean
from gangline.spec.codec import canonical, to_plain
from gangline.spec.devices import other_kinds
from gangline.spec.measurements import Curve
from gangline.spec.processes import ProcessReport
from gangline.spec.program_files import OUTPUTS_KIND, SAVE_KIND, RuntimeReport
from gangline.spec.record import UNDECLARED, UNREPORTED, Record
from gangline.spec.run_flags import NOT_FINITE, STEPS_TOLD, stage
from gangline.storage.objects.blobs import put_blob
from gangline.units import format_count, format_number, now, sparkline

_MOST_NAMED = 3
DOUBTS = "doubts"
"""Output of the train stage: sentences of `_doubts`, for runs that take it."""


def train(ctx: RunContext) -> StageResult:
    """Fails with the error of the gang's exit code (30 to 34, 50); measurements up to then are recorded."""
    key = train_key(ctx)
    earlier = find_training(ctx, key) if ctx.record.gang is None else None
    if earlier is not None:
        return _taken(ctx, key, earlier)
    target = ctx.record.run.target
    with carried(ctx, lambda *gang: ctx.change(lambda record: with_gang(record, gang[0], target, gang[1]))) as started:
        finished = run_gangs(ctx, "train", ctx.plan, on_started=started)
    collected, ran = read_outputs(ctx, finished), _ran(ctx, finished)
    written, error = MetricsFile(), finished.error or _work_tree_error(ctx, ran)
    # final metrics of the program
    jobs = finished.result.jobs if finished.result else ()
    own = next((dict(job.metrics) for job in jobs if job.seed == ctx.line.train.seed), {})
    try:
        written = read_program_metrics(ctx, finished, collected)
        own = with_program_metrics(own, written)
    except ConfigError as wrong:
        error = error or wrong
    not_finite = _not_finite(finished, ctx.line.train.seed) | written.not_finite
    measured = read_training_result(ctx, finished, written=written)
    measured = replace(measured, training=replace(measured.training, workers=read_workers(ctx)))
    not_finite |= measured.not_finite
    ended = read_processes(ctx, finished) if finished.error is None else None
    searches = _searches_text(ctx, ran)
    doubts = _doubts(ctx, finished, measured, collected, searches) if error is None else []
    if error is not None:
        error = type(error)("; ".join(filter(None, [str(error), searches])))
    else:
        _record_traceback(ctx, finished, ended)
        record_failed_processes(ctx, ended)
        _record_unreported(
            ctx, {*own, *not_finite, *measured.metrics}, has_curve=_has_curve(measured.curve),
            joined=_joined(finished), keeps=collected is not None,
        )  # fmt: skip
        _record_doubts(ctx, doubts)
    return StageResult(
        state="failed" if error else "done",
        message=finished.end.reason if finished.error else str(error) if error else _message(finished, measured),
        error=error,
        key=key,
        outputs={
            "checkpoint": finished.result.checkpoint if finished.result else None,
            "export_names": _store_export_names(ctx, finished),
            "final_step": measured.final_step,
            "metrics": own,
            EVALUATIONS: _evaluations(finished, ctx.line.train.seed),
            **({NOT_FINITE: not_finite} if not_finite else {}),
            **({DOUBTS: doubts} if doubts else {}),
            unreported_metrics.JOINED: _joined(finished),
            STEPS_TOLD: bool(measured.final_step) or finished.end.step is not None,
            "attempts": finished.attempts,
            "save_seconds": measured.save_seconds,
        },
        change=lambda record: _with_results(
            replace(record, ran=ran, processes=ended), finished, measured, collected, not_finite
        ),
    )


def _ran(ctx: RunContext, finished: FinishedGang) -> RuntimeReport | None:
    """Environment as the ranks report it; None if they reported nothing valid."""
    ran = gang_environment(ctx, finished, "train")
    if ran is not None and (text := undeclared_reads_text(ran, ctx.repository.work_tree)):
        ctx.record_event("train", UNDECLARED, f"a rank {text}")
    _record_other_gpus(ctx, ran)
    return ran


def _other_gpus(record: Record, ran: RuntimeReport | None) -> tuple[str, ...]:
    """Kinds of GPU that ranks computed on and the plan was not made for."""
    return other_kinds(record.plan.device_name, ran.gpus) if record.plan is not None and ran is not None else ()


def _record_other_gpus(ctx: RunContext, ran: RuntimeReport | None) -> None:
    if others := _other_gpus(ctx.record, ran):
        planned = ctx.record.plan.device_name if ctx.record.plan else ""
        text = f"ranks computed on {', '.join(others)}, and the plan is for {planned}: its forecast does not hold"
        ctx.record_event("train", "gpus", text)


def _searches_text(ctx: RunContext, ran: RuntimeReport | None) -> str:
    """Searches for files that the code layer leaves out: they found nothing, and raised nothing."""
    if ran is None or not ran.searches:
        return ""
    project, folder = ctx.line.project, LayerSelection.of(ctx.line.project, ctx.repository).folder
    return search_text(
        ran.searches, files_left_out(ctx.repository, ctx.record.commit.tree, project), folder=folder
    )  # fmt: skip


def _work_tree_error(ctx: RunContext, ran: RuntimeReport | None) -> ConfigError | None:
    """Error if ranks on this machine imported modules from the work tree."""
    if ran is None or ctx.record.run.launcher.has_pods:
        return None
    return work_tree_error(ran, ctx.repository.work_tree, home=ctx.home.resolve())


def _store_export_names(ctx: RunContext, finished: FinishedGang) -> str | None:
    """Key of the tensor names for a published model; None: those of the model."""
    names = finished.result.export_names if finished.result else {}
    return put_blob(ctx.store, canonical(names)) if names else None


def _evaluations(finished: FinishedGang, seed: int) -> list[Any]:
    """What the program measured on which weights."""
    jobs = finished.result.jobs if finished.result else ()
    return [to_plain(evaluation) for job in jobs if job.seed == seed for evaluation in job.evaluations]


def _not_finite(finished: FinishedGang, seed: int) -> dict[str, str]:
    """Metric -> nan, inf or -inf; gates on these fail."""
    jobs = finished.result.jobs if finished.result else ()
    return next((dict(job.not_finite) for job in jobs if job.seed == seed), {})


def _joined(finished: FinishedGang) -> bool:
    """Whether the program uses Program or Session, which write a result."""
    return finished.result is not None


def _has_curve(curve: Curve) -> bool:
    """Whether there was a loss by step, finite or not."""
    return bool(curve.points or curve.broken)


def _record_unreported(
    ctx: RunContext, reported: Collection[str], *, has_curve: bool, joined: bool, keeps: bool
) -> None:
    """Record which metrics a program did not report, and how to report them; that is no failure.

    One whose gates judge what it reports needs no curve, nor does one whose line names the file that it reports by.
    """
    if ctx.line.project.task is not None:
        return
    judged = ctx.line.gate.quality
    names = [gate.metric for gate in judged if gate.metric not in reported]
    has_curve = has_curve or bool(judged and not names) or bool(ctx.line.project.metrics and reported)
    if metrics_text := unreported_metrics.missing_metrics_text(
        names, has_curve=has_curve, form="joined" if joined else "other", is_all=not (reported or has_curve or keeps)
    ):
        ctx.record_event("train", UNREPORTED, metrics_text)


def _record_traceback(ctx: RunContext, finished: FinishedGang, ended: ProcessReport | None) -> None:
    """An exception that the program caught itself may be all that it did."""
    found = finished.end.evidence.get("traceback")
    if isinstance(found, dict):
        rank, said = clean(str(found.get("rank")), limit=10), clean(str(found.get("said")), limit=300)
        if ended is not None and any(failure.said and failure.said in said for failure in ended.failed):
            return  # that of another process
        text = f"the program ended with exit 0, but the log of rank {rank} ends with a traceback: {said}"
        ctx.record_event("train", "program", text)


def _doubts(
    ctx: RunContext, finished: FinishedGang, measured: TrainingResult, collected: CollectedOutputs | None,
    searches: str,
) -> list[str]:  # fmt: skip
    """What a program that ended well did otherwise than one would take it to have, a sentence each."""
    if ctx.line.project.task is not None:
        return []
    found = [said for said in (_leftovers_text(finished), metrics_writers_text(ctx, collected), searches) if said]
    if finished.result is None:
        return found
    plan = finished.plan
    said = (
        _steps_text(finished, measured),
        _not_finite_text(measured),
        differing_metrics_text(ctx.store, plan.output_prefix, world_size=plan.world_size),
        reporting_processes_text(ctx.store, plan.output_prefix),
    )
    return found + [each for each in said if each]


def _steps_text(finished: FinishedGang, measured: TrainingResult) -> str:
    """Fewer or more steps than the plan has."""
    step, wanted = measured.final_step, finished.plan.last_step
    restarted = finished.restarts and not measured.training.resumes
    since = ", counted from its last restart, as it did not resume by program.resume" if restarted else ""
    if step > wanted:
        return f"the program made {step} steps, and the plan has {wanted}; train.steps sets them"
    return f"the program ended after {step} of {wanted} steps{since}" if 0 < step < wanted else ""


def _not_finite_text(measured: TrainingResult) -> str:
    if not measured.not_finite:
        return ""
    step, last = measured.final_step, max(measured.losses, default=0)
    return f"the loss of the last step, {step}, is not finite; the last finite one is that of step {last}"


def _leftovers_text(finished: FinishedGang) -> str:
    """A training that a command started in the background, and did not wait for, did not end."""
    found = finished.end.evidence.get("leftovers")
    if not isinstance(found, list) or not found:
        return ""
    what, were = ("1 process", "was") if len(found) == 1 else (f"{len(found)} processes", "were")
    named = [clean(str(each), limit=80) for each in found[:_MOST_NAMED]] + ["..."] * (len(found) > _MOST_NAMED)
    return f"{what} of the program {were} still running when it exited with 0, and {were} stopped: {', '.join(named)}"


def _record_doubts(ctx: RunContext, doubts: Iterable[str]) -> None:
    for doubt in doubts:
        ctx.record_event("train", "program", doubt)


def _with_results(
    record: Record, finished: FinishedGang, measured: TrainingResult, collected: CollectedOutputs | None,
    not_finite: Collection[str],
) -> Record:  # fmt: skip
    assert record.plan is not None, record.run.id
    assert record.gang is not None, record.run.id
    metrics = {name: metric for name, metric in measured.metrics.items() if name not in not_finite}
    if _other_gpus(record, record.ran):
        metrics.pop("mfu", None)  # a share of what other devices can do
    gang = replace(
        record.gang,
        released=finished.end.time or now(),
        waiting=None,
        generations=finished.end.generation + 1,
        restarts=finished.restarts,
    )
    return replace(
        record,
        plan=replace(record.plan, measured=measured.measured),
        gang=gang,
        curve=measured.curve,
        ranks=measured.ranks,
        diagnoses=measured.diagnoses,
        training=measured.training,
        federated=measured.federation,
        metrics=record.metrics | metrics,
        ledger=ledger.with_drill_loss(
            ledger.merge_ledgers(finished.plan.device, finished.shares),
            record.drills,
            gang,
            ranks=record.plan.world_size,
        ),
        outputs=collected.info if collected else None,
        artifacts=(*record.artifacts, *measured.artifacts, *([collected.artifact] if collected else [])),
    )


def _taken(ctx: RunContext, key: str, earlier: Record) -> StageResult:
    """Results of an earlier run; without a ledger, because no time was spent."""
    outputs = stage(earlier, "train").outputs
    reported = {
        *(outputs.get("metrics") or {}),
        *outputs.get(NOT_FINITE, {}),
        *(earlier.metrics.keys() & TrainingResult.METRICS),
    }
    joined, keeps = outputs.get(unreported_metrics.JOINED, True), earlier.outputs is not None
    _record_unreported(ctx, reported, has_curve=_has_curve(earlier.curve), joined=joined, keeps=keeps)
    _record_doubts(ctx, outputs.get(DOUBTS, ()))
    record_failed_processes(ctx, earlier.processes)
    _record_other_gpus(ctx, earlier.ran)

    def change(record: Record) -> Record:
        plan = record.plan
        if plan is not None and earlier.plan is not None:
            plan = replace(plan, measured=earlier.plan.measured)
        metrics = {name: value for name, value in earlier.metrics.items() if name in TrainingResult.METRICS}
        artifacts = tuple(
            artifact
            for artifact in earlier.artifacts
            if artifact.kind in {"metrics", "checkpoint", SAVE_KIND, OUTPUTS_KIND}
        )
        return replace(
            record,
            plan=plan,
            curve=earlier.curve,
            ranks=earlier.ranks,
            diagnoses=earlier.diagnoses,
            training=earlier.training,
            federated=earlier.federated,
            ran=earlier.ran,
            processes=earlier.processes,
            metrics=record.metrics | metrics,
            outputs=earlier.outputs,
            artifacts=(*record.artifacts, *artifacts),
        )

    origin = stage_origin(earlier, "train")
    message = f"taken from {origin}: {reuse_text(earlier)}"
    return StageResult(state="taken", message=message, key=key, taken_from=origin, outputs=outputs, change=change)


def _message(finished: FinishedGang, measured: TrainingResult) -> str:
    plan = finished.plan
    step, wanted = measured.final_step, plan.last_step
    done = f"{step} steps" if step > wanted else f"{step}/{wanted}" if step else "ended well"
    parts = [f"{plan.name} {done}"]
    if (loss := measured.metrics.get("loss")) is not None:
        shown = measured.not_finite.get("loss") or format_number(loss.value)
        parts[0] += f" {sparkline([point.value for point in measured.curve.points])} loss {shown}"
    if speed := measured.metrics.get("tokens_per_second"):
        parts.append(f"{format_count(speed.value)} tokens/s")
    if restarts := finished.restarts:
        parts.append("1 restart" if restarts == 1 else f"{restarts} restarts")
    return " · ".join(parts)
