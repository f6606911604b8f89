"""Attempts of a stage's gang: submits a gang, follows it to its end, and starts the next one if the end allows it.

The gang of an attempt has its own name, made from run, role and attempt, so a driver that takes over finds the whole
chain: the end of a gang that has ended is read at once, one that runs is followed. The keeper restarts ranks inside a
gang; the line starts another gang if the allocation was lost, or with half the micro-batch after memory ran out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, isfinite

from gangline.build.own_environment import editable_packages_in, missing_module
from gangline.errors import CancelledError, CapacityError, GanglineError, IntegrityError, StorageError, error_for
from gangline.launch.protocol import Gang
from gangline.line.gangs.follow import earlier_end, follow
from gangline.line.gangs.missed_inputs import missing_package, missing_variable, path_outside_layer
from gangline.line.gangs.podsets import podset_for
from gangline.line.gangs.sandbox import hidden_path_in, sandbox_of
from gangline.line.record.context import RunContext
from gangline.metrics.step_table import step_of
from gangline.spec import identity
from gangline.spec.codec import from_json
from gangline.spec.config.grammar import SHA256
from gangline.spec.gang.status import GangEnd, GangResult
from gangline.spec.output_limits import (
    MOST_EVALUATIONS,
    MOST_EVENT_BYTES,
    MOST_JOBS,
    MOST_METRIC_BYTES,
    MOST_METRICS,
    MOST_NAME,
    MOST_RESULT_BYTES,
    MOST_WEIGHTS_FILES,
)
from gangline.spec.plan import Plan
from gangline.spec.record import RETRY
from gangline.storage.objects.growing_file import GrowingFile, copy_growing_file, find_growing_file
from gangline.storage.objects.keys import is_key
from gangline.storage.objects.protocol import ObjectStore, get_bounded
from gangline.units import format_bytes


@dataclass(frozen=True, slots=True)
class GangShare:
    """GPU or CPU seconds of one gang by cause, out of `allocated`."""

    allocated: float
    seconds: Mapping[str, float]


MAX_CHARGED = 3
"""Gangs of one stage that may be lost with their allocation, or stopped without a further step, before it fails."""
MAX_ATTEMPTS = identity.ATTEMPTS - 1
METRICS, EVENTS = "metrics.jsonl", "ranks/0.jsonl"
ATTEMPT_FILES = {METRICS: MOST_METRIC_BYTES, EVENTS: MOST_EVENT_BYTES}
"""Files of each attempt that are kept, named as in `spec.gang`, and how many bytes of each are read."""
_LEFT_OPEN = frozenset({"later", "same"})
"""Retry classes after which an earlier driver may have left the run open: the next driver starts another gang."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedGang:
    """The last gang of a stage, with the time of all of them."""

    name: str
    plan: Plan
    """Plan of the last attempt."""
    end: GangEnd
    result: GangResult | None
    """None: the program writes no result, or the gang failed."""
    shares: tuple[GangShare, ...]
    """Shares of every attempt, for the ledger."""
    attempts: int
    earlier: tuple[GangEnd, ...] = ()
    """Ends of the attempts before the last one."""
    restarts: int = 0
    """Restarts of ranks in all gangs, and of gangs."""
    num_ranks: int = 0
    """Ranks of all gangs that held the shares at the same time; 0: those of the plan."""
    error: GanglineError | None = None
    """Error of the class of its exit code, if it failed and there is no further attempt."""


@dataclass(kw_only=True, slots=True)
class _Attempts:
    """What the gangs of a stage took so far."""

    shares: list[GangShare] = field(default_factory=list)
    ends: list[GangEnd] = field(default_factory=list)
    restarts: int = 0
    """Restarts of ranks in these gangs, and of gangs, the next one included."""
    charged: int = 0
    """Gangs that this driver saw end, lost or stopped without a step beyond those of earlier ones."""
    furthest_step: int = -1

    def add(self, end: GangEnd, *, is_earlier: bool) -> None:
        self.shares.append(GangShare(end.allocated_seconds, end.ledger))
        self.ends.append(end)
        self.restarts += end.restarts + 1
        progressed = end.step is not None and end.step > self.furthest_step
        self.charged += not is_earlier and not (_is_stopped(end) and progressed)
        self.furthest_step = max(self.furthest_step, end.step or -1)

    def seconds(self, plan: Plan) -> float:
        """Time of these gangs of `plan`."""
        return fsum(share.allocated for share in self.shares) / plan.world_size


def run_gang(
    ctx: RunContext, stage: str, plan: Plan, *, chain: int = 0, on_started: Callable[[Gang, int], object] | None = None
) -> FinishedGang:
    """Start or adopt the gang of `plan`, follow it, start the next attempt if its end allows one.

    Args:
        ctx: Of the run.
        stage: Stage for the observer and the record's events.
        plan: Of the first attempt.
        chain: Index of the gang for a role with several gangs, each with its own attempts.
        on_started: Called with the gang of each attempt, and the restarts before it.

    Raises:
        CancelledError: The run was cancelled or superseded.
        CapacityError: No capacity; the run stays open.
        StorageError: The gang could not continue without its store; the run stays open.
    """
    so_far = _Attempts()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        spent, before = so_far.seconds(plan), so_far.restarts
        gang = ctx.launcher.submit(podset_for(ctx, plan, attempt, chain=chain, spent_seconds=spent))
        if on_started is not None:
            on_started(gang, before)
        earlier = earlier_end(ctx, gang)
        end = earlier or follow(ctx, stage, gang.name, restarts=before)
        so_far.add(end, is_earlier=earlier is not None)
        left_open = earlier is not None and end.retry in _LEFT_OPEN
        next_plan = plan if left_open else _next_plan(ctx, stage, plan, end, charged=so_far.charged)
        if next_plan is None:
            error = _error(end, missing_file_hint(ctx, end))
            return FinishedGang(
                name=gang.name, plan=plan, end=end, result=None if error else read_result(ctx, plan),
                shares=tuple(so_far.shares), attempts=attempt, earlier=tuple(so_far.ends[:-1]),
                restarts=so_far.restarts - 1, error=error,
            )  # fmt: skip
        _keep_files(ctx, plan, attempt)
        plan = next_plan
    raise CapacityError(f"{plan.run}: {MAX_ATTEMPTS} gangs lost their allocation; run again when capacity is stable")


def attempt_key(plan: Plan, name: str, attempt: int | None = None) -> str:
    """Key of a file of ATTEMPT_FILES: of the last gang of a stage (None), or the copy of an earlier attempt."""
    stem, _, ending = name.rpartition(".")
    return f"{plan.output_prefix}/{name if attempt is None else f'{stem}-{attempt}.{ending}'}"


def attempt_files(store: ObjectStore, plan: Plan, name: str, attempts: int, *, most_bytes: int) -> list[GrowingFile]:
    """A file of ATTEMPT_FILES of each of `attempts` gangs, in order, without gangs that wrote none.

    Raises:
        IntegrityError: Together they have more than `most_bytes`; none was read.
    """
    keys = [attempt_key(plan, name, attempt) for attempt in (*range(1, attempts), None)]
    files = [file for key in keys if (file := find_growing_file(store, key)) is not None]
    if (size := sum(file.size_bytes for file in files)) > most_bytes:
        wanted = format_bytes(most_bytes)
        raise IntegrityError(
            f"{attempt_key(plan, name)}: wanted at most {wanted} of {len(files)} attempts, found {format_bytes(size)};"
            " not read"
        )
    return files


def read_result(ctx: RunContext, plan: Plan) -> GangResult | None:
    """Result that the gang wrote; None for a program that writes none, and for a worker whose run another one saved.

    Raises:
        IntegrityError: It is too large, not valid for a gang of this plan, or missing after a task.
    """
    key = f"{plan.output_prefix}/result.json"
    blob = get_bounded(ctx.store, key, most_bytes=MOST_RESULT_BYTES)
    if blob is None and plan.program.task is not None and not plan.worker:
        raise IntegrityError(f"wanted {key} from a gang that ended well, found nothing; gangline logs {plan.run}")
    if blob is None:
        return None
    result = from_json(GangResult, blob.data)
    check_result(result, plan, key=key)
    return result


def check_result(result: GangResult, plan: Plan, *, key: str) -> None:
    """Check that `result` is one of a gang of `plan`. Pure.

    Raises:
        IntegrityError: It has another role, names a checkpoint of another run, or exceeds a limit.
    """
    if result.role != plan.role:
        raise IntegrityError(f"{key}: wanted the result of {plan.role}, found one of {result.role}")
    if result.checkpoint is not None and not _is_own_checkpoint(result.checkpoint, plan):
        raise IntegrityError(
            f"{key}: wanted a checkpoint below {plan.run_prefix}/, or one that the plan names,"
            f" found {result.checkpoint[:200]!r}"
        )
    evaluations = [evaluation for job in result.jobs for evaluation in job.evaluations]
    names = [name for job in result.jobs for name in (*job.metrics, *job.not_finite)]
    names += [name for evaluation in evaluations for name in (*evaluation.metrics, *evaluation.weights)]
    sizes = {
        "jobs": (len(result.jobs), MOST_JOBS),
        "metrics of a job": (
            max((len(job.metrics) + len(job.not_finite) for job in result.jobs), default=0),
            MOST_METRICS,
        ),
        "evaluations": (max((len(job.evaluations) for job in result.jobs), default=0), MOST_EVALUATIONS),
        "metrics of an evaluation": (
            max((len(evaluation.metrics) for evaluation in evaluations), default=0),
            MOST_METRICS,
        ),
        "files of weights": (
            max((len(evaluation.weights) for evaluation in evaluations), default=0),
            MOST_WEIGHTS_FILES,
        ),
        "units of metrics": (len(result.metric_units), MOST_METRICS),
        "characters of a name": (max(map(len, [*names, *result.metric_units]), default=0), MOST_NAME),
    }
    for what, (found, most) in sizes.items():
        if found > most:
            raise IntegrityError(f"{key}: wanted at most {most} {what}, found {found}")
    measured = [*(job.metrics for job in result.jobs), *(evaluation.metrics for evaluation in evaluations)]
    values = [(name, value) for metrics in measured for name, value in metrics.items()]
    if not_finite := next((name for name, value in values if not isfinite(value)), None):
        raise IntegrityError(f"{key}: wanted finite numbers as metrics, {not_finite} is not finite")
    texts = {text for job in result.jobs for text in job.not_finite.values()}
    if invalid := texts - {"nan", "inf", "-inf"}:
        raise IntegrityError(
            f"{key}: wanted nan, inf or -inf as numbers that are not finite, found {min(invalid)[:40]!r}"
        )
    digests = {
        text
        for evaluation in evaluations
        for file in evaluation.weights.values()
        for text in (file.sha256, file.blocks)
    }
    if wrong_digest := next((text for text in digests - {""} if not SHA256.fullmatch(text)), None):
        raise IntegrityError(f"{key}: wanted digests of weights of 64 hex digits, found {wrong_digest[:80]!r}")
    steps = [result.final_step, *(job.step for job in result.jobs), *(evaluation.step for evaluation in evaluations)]
    if wrong := [step for step in steps if step_of({"step": step}) is None]:
        raise IntegrityError(f"{key}: wanted a step from 0 on, found one of {wrong[0].bit_length()} bits")


def _is_own_checkpoint(checkpoint: str, plan: Plan) -> bool:
    """Whether it is below the gang's own prefix, or the one that the plan gives the gang to open."""
    return is_key(checkpoint) and (
        checkpoint.startswith(f"{plan.run_prefix}/") or checkpoint in {job.checkpoint for job in plan.jobs}
    )


def _next_plan(ctx: RunContext, stage: str, plan: Plan, end: GangEnd, *, charged: int) -> Plan | None:
    """The plan of the next attempt; None if there is none."""
    if end.exit_code == 0:
        return None
    if reason := ctx.cancel_requested():
        raise CancelledError(f"{plan.run} is being cancelled: {reason}")
    if end.retry == "changed" and (smaller := _half_micro_batch(ctx, plan)):
        text = f"memory ran out at micro_batch {plan.micro_batch}: retrying with {smaller}"
        ctx.record_event(stage, RETRY, text)
        return replace(plan, micro_batch=smaller)
    if charged < MAX_CHARGED and (end.retry == "same" or _is_stopped(end)):
        reason = end.reason or "the gang was lost"
        ctx.record_event(stage, RETRY, f"{reason}: the next gang resumes from the last checkpoint, if there is one")
        return plan
    return None


def missing_file_hint(ctx: RunContext, end: GangEnd) -> str:
    """Sentence about what a failed program missed, and its commit, sandbox or environment lacks or hides."""
    commit = ctx.record.commit
    if end.exit_code == 0 or commit.trust != "own":
        return ""
    lines = [str(line) for line in end.evidence.get("log") or ()]
    return next(filter(None, _hints(ctx, lines)), "")


def _hints(ctx: RunContext, lines: Sequence[str]) -> Iterator[str]:
    """The likeliest first; most are empty."""
    commit = ctx.record.commit
    yield path_outside_layer(lines, ctx.repository, commit.tree, ctx.line.project)
    yield missing_variable(lines, ctx.environ, ctx.line.train.env)
    if not ctx.record.run.launcher.has_pods:
        yield missing_module(lines, editable_packages_in(ctx.repository.work_tree))
        yield hidden_path_in(lines, sandbox_of(ctx.repo, commit.trust, site=ctx.site, environ=ctx.environ))
        files = (entry.path for entry in ctx.repository.entries(commit.tree))
        yield missing_package(lines, files, path=ctx.line.project.path, lock=ctx.line.env.lock)


def _error(end: GangEnd, hint: str) -> GanglineError | None:
    """The error of a gang's end for its stage; raised at once if the run stays open."""
    if end.exit_code == 0:
        return None
    error = error_for(end.exit_code)((end.reason or f"the gang ended with {end.exit_code}") + hint)
    if isinstance(error, CapacityError | StorageError):
        raise error
    return error


def _is_stopped(end: GangEnd) -> bool:
    """Whether the gang was preempted, or stopped by Ctrl-C or a sweep: such an end is no failure."""
    return end.retry == "free" or end.exit_code == CancelledError.exit_code


def _half_micro_batch(ctx: RunContext, plan: Plan) -> int | None:
    """Largest size up to half that divides a rank's share; None if the line sets it, or it was halved already."""
    was_halved = plan.micro_batch != ctx.plan.micro_batch
    if ctx.line.train.mesh.micro_batch != "auto" or was_halved:
        return None
    return next((size for size in range(plan.micro_batch // 2, 0, -1) if plan.rank_samples % size == 0), None)


def _keep_files(ctx: RunContext, plan: Plan, attempt: int) -> None:
    """Copy what rank 0 of an ended attempt wrote, because the next attempt overwrites it."""
    for name, most_bytes in ATTEMPT_FILES.items():
        file = find_growing_file(ctx.store, attempt_key(plan, name))
        if file is not None:
            file.demand(most_bytes)
            copy_growing_file(file, attempt_key(plan, name, attempt))
