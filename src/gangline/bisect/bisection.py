"""A bisection: its request, history, metric and step, its forecast, and its state in the store.

Nothing is trained before `Bisection.run`. The state is one document, keyed by the request, so the same request
resumes. The history follows first parents: a merge is one commit.
"""

import math
from base64 import b32encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from gangline.bisect.bisector import MAX_SEEDS, BisectLimits, Bisector, seconds_each
from gangline.bisect.decisions import steps_left
from gangline.bisect.recorded_values import MetricAtStep, cheapest_step, next_curve_step, step_to_measure
from gangline.bisect.repository_measurer import RepositoryMeasurer
from gangline.errors import UsageError
from gangline.git.repository import Repository
from gangline.line.request.project_claim import require_claimable
from gangline.line.request.run_lookup import look_up_run
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.run.driver import RunWorkspace
from gangline.report.bisection.text import Culprit
from gangline.report.comparison.types import FileChange
from gangline.report.next_commands import bisection
from gangline.spec.bisect import BisectCommit, BisectState
from gangline.spec.codec import canonical
from gangline.spec.measurements import Better
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now


def bisect_id(project: str, *fields: object) -> str:
    """Id of a bisection; equal for equal requests."""
    letters = b32encode(sha256(canonical([project, *fields])).digest()).decode().lower()[:6]
    return f"{project}-bisect-{letters}"


def state_key(project: str, name: str) -> str:
    """Key of the state of the bisection `name`."""
    return f"bisects/{project}/{name}/state.json"


def store_state(store: ObjectStore, state: BisectState) -> None:
    """Write the state under its key."""
    store.put(state_key(state.project, state.id), state.to_json())


def load_state(store: ObjectStore, project: str, name: str) -> BisectState | None:
    """The stored state; None if the bisection was never started."""
    blob = store.get(state_key(project, name))
    return None if blob is None else BisectState.from_json(blob.data)


OnState = Callable[[BisectState], None]
LOSS = "loss"
"""The metric that every step has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectRequest:
    """A request as given on the command line."""

    metric: str
    """`eval_loss`, or `loss@500` at a step."""
    good: str
    """Commit, branch, tag or run."""
    bad: str
    seeds: int = 3
    error: float = 0.05
    budget_hours: float | None = None
    target: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectForecast:
    """Expected cost of a search."""

    least: int
    """Missing values of the ends, and one for each step of the search: commits that are clear after one seed."""
    trainings: int
    """The same with as many seeds for each step as for the ends, which is expected."""
    most: int
    """The same with as many seeds as a commit gets before it is skipped."""
    hours: float | None
    """Rank-hours of `trainings`, like the budget; None if nothing was measured yet."""


@dataclass(kw_only=True)
class Bisection:
    """A search, new or resumed."""

    workspace: RunWorkspace
    state: BisectState
    limits: BisectLimits
    measurer: RepositoryMeasurer

    @property
    def forecast(self) -> BisectForecast:
        """Expected cost of the remaining search."""
        known = [len(commit.values) for commit in (self.state.suspects[0], self.state.suspects[-1])]
        steps, seeds = steps_left(self.state.sides), self.state.seeds

        def trainings(of_ends: int, of_commits: int) -> int:
            return sum(max(0, of_ends - count) for count in known) + steps * of_commits

        expected, seconds = trainings(seeds, seeds), seconds_each(self.state, self.limits)
        return BisectForecast(
            least=trainings(seeds, 1),
            trainings=expected,
            most=trainings(MAX_SEEDS * seeds, MAX_SEEDS * seeds),
            hours=None if seconds is None else seconds * expected / 3600,
        )

    def run(self, *, tell: OnState) -> BisectState:
        """Search to the end; `tell` is called with every new state.

        If a short training does not separate the ends, a whole one is tried.
        """
        state = self._run(self.state, tell)
        if state.ending in {"same", "unfit"} and state.at < state.steps and state.asked_at is None:
            note = f"at step {state.at} the bad end is not worse: measured at the last step, {state.steps}"
            whole = replace(_without_values(state), at=state.steps, notes=(note,))
            state = self._run(whole, tell)
        return state

    def _run(self, state: BisectState, tell: OnState) -> BisectState:
        measurer = replace(self.measurer, wanted=_metric_at_step(state))

        def changed(new: BisectState) -> None:
            store_state(self.workspace.store, new)
            tell(new)

        return Bisector(state, measurer, self.limits, on_state=changed).run()


def prepare(workspace: RunWorkspace, request: BisectRequest) -> Bisection:
    """The stored search of an equal request, or a new one.

    Raises:
        UsageError: No such commit, ends in the wrong order, or a metric or step that their runs cannot have.
        ConfigError: The line of an end is invalid, or its project name is another repository's.
    """
    repository = Repository.at(workspace.repo)
    good, bad = (_commit(workspace, repository, name) for name in (request.good, request.bad))
    history = read_history(repository, good, bad)
    ends = [resolve_request(workspace.repo, commit=sha, overrides=(), strategy=None) for sha in (good, bad)]
    require_claimable(workspace.store, ends[0], site=workspace.site, environ=workspace.environ)
    metric, at = _split(request.metric)
    project = ends[0].line.project.name
    name = bisect_id(project, metric, at, good, bad, request.seeds, request.error)
    records = [_whole_run(workspace, sha) for sha in (good, bad)]
    _require_metric(metric, records)
    anywhere = MetricAtStep(metric=metric, at=0, since="")
    measurer = RepositoryMeasurer(workspace=workspace, wanted=anywhere, target=request.target)
    state = load_state(workspace.store, project, name)
    if state is None or state.ending == "unfit":  # the end may be measurable by now
        end_steps = tuple(run_request.line.train.steps for run_request in ends)
        steps = min(end_steps)
        state = BisectState(
            id=name, project=project, metric=metric, at=_step(workspace, records, metric, at, steps), steps=steps,
            better=_better(ends, records, metric), seeds=request.seeds, error=request.error, created=now(),
            suspects=history, asked_at=at, end_steps=end_steps if len(set(end_steps)) > 1 else (),
        )  # fmt: skip
        if at is None:
            state = replace(state, at=cheapest_step(sorted({state.at, steps}), partial(_trainings, measurer, state)))
    plan = next((record.plan for record in records if record and record.plan), None)
    if plan is not None:
        state = replace(state, resource="gpu" if plan.device == "cuda" else "cpu")
    limits = BisectLimits(
        first_seed=ends[0].line.train.seed,
        budget_seconds=None if request.budget_hours is None else request.budget_hours * 3600,
        training_seconds=_seconds(records, state.at),
    )
    measurer = replace(measurer, wanted=_metric_at_step(state))
    return Bisection(
        workspace=workspace, state=_with_recorded_values(measurer, state), limits=limits, measurer=measurer
    )


def _with_recorded_values(measurer: RepositoryMeasurer, state: BisectState) -> BisectState:
    """The state with recorded values of both ends, for the forecast."""
    suspects = list(state.suspects)
    for place in (0, len(suspects) - 1):
        answer = measurer.recorded(suspects[place].sha)
        values: dict[str, float | str] = {
            str(seed): value for seed, value in answer.values.items() if math.isfinite(value)
        }
        suspects[place] = replace(suspects[place], values=suspects[place].values | values)
    return state if state.ending else replace(state, suspects=tuple(suspects))


def _trainings(measurer: RepositoryMeasurer, state: BisectState, at: int) -> int:
    """Expected number of trainings of a search at this step, in addition to recorded values."""
    at_step = replace(measurer, wanted=_metric_at_step(replace(state, at=at)))
    known = [len(at_step.recorded(suspect.sha).values) for suspect in state.suspects]
    ends = sum(max(0, state.seeds - count) for count in (known[0], known[-1]))
    return ends + math.ceil(math.log2(1 + known[1:-1].count(0)))


def _metric_at_step(state: BisectState) -> MetricAtStep:
    return MetricAtStep(metric=state.metric, at=state.at, since=state.created)


def _without_values(state: BisectState) -> BisectState:
    """The state without any values."""
    suspects = tuple(
        replace(suspect, values={}, origin="", runs=(), reason="", unreported=False, doubt=None, odd=False)
        for suspect in state.suspects
    )
    return replace(state, suspects=suspects, ending=None, first_bad=None)


def _commit(workspace: RunWorkspace, repository: Repository, name: str) -> str:
    """SHA of a commit by its name in git, else by the name of a run."""
    try:
        return repository.commit(name)
    except UsageError as no_commit:
        try:
            return look_up_run(workspace.store, workspace.repo, name).commit.sha
        except UsageError:
            raise no_commit from None


def _split(text: str) -> tuple[str, int | None]:
    metric, sign, step = text.partition("@")
    if not metric or (sign and not (step.isdigit() and int(step) > 0)):
        raise UsageError(f"wanted METRIC or METRIC@STEP, found {text!r}; such as loss@500 or eval_loss")
    return metric, int(step) if sign else None


def _step(workspace: RunWorkspace, records: list[Record | None], metric: str, at: int | None, steps: int) -> int:
    """Step to measure: as requested, for the loss at a point of the curve; else where the curves separate."""
    if at is None:
        return step_to_measure(workspace.store, records[0], records[1], steps=steps)
    if at > steps:
        raise UsageError(f"{metric}@{at}: trainings have {steps} steps (train.steps); name a step up to that")
    return next_curve_step(at, steps) if metric == LOSS else at


def _require_metric(metric: str, records: list[Record | None]) -> None:
    """Raise UsageError if a complete run of an end does not have the metric."""
    for record in records:
        ended = record is not None and record.run.verdict in {"passed", "refused"}
        if record and ended and metric not in {*record.metrics, record.curve.metric, LOSS}:
            has = ", ".join(sorted(record.metrics))
            raise UsageError(f"wanted a metric of {record.run.id}, found {metric!r}; it has {has}")


def _whole_run(workspace: RunWorkspace, sha: str) -> Record | None:
    """The newest run of a commit, if it has a plan and a curve or metrics."""
    try:
        record = look_up_run(workspace.store, workspace.repo, sha)
    except UsageError:
        return None
    return record if record.plan is not None and (record.curve.points or record.metrics) else None


def _better(ends: list[RunRequest], records: list[Record | None], metric: str) -> Better | None:
    """Direction of the metric by a gate or record; lower for losses; None if unknown."""
    gates = [gate.better for request in ends for gate in request.line.gate.quality if gate.metric == metric]
    recorded = [record.metrics[metric].better for record in records if record and metric in record.metrics]
    known = next((each for each in (*gates, *recorded) if each), None)
    return known or ("lower" if metric == LOSS or metric.endswith("_loss") else None)


def _seconds(records: list[Record | None], at: int) -> float | None:
    """Rank-seconds of one training up to step `at`, with start and stop."""
    each = [seconds for record in records if record and (seconds := _rank_seconds(record, at)) is not None]
    return sum(each) / len(each) if each else None


def _rank_seconds(record: Record, at: int) -> float | None:
    if record.plan is None or not record.plan.measured.wall_seconds:
        return None
    measured = record.plan.measured
    last = record.curve.points[-1].step if record.curve.points else at
    cut = (measured.step_seconds or 0.0) * max(0, last - at)
    return max(0.0, (measured.wall_seconds or 0.0) - cut) * record.plan.world_size


def read_history(repository: Repository, good: str, bad: str) -> tuple[BisectCommit, ...]:
    """Both ends and the commits between them, oldest first; only the ends have a side.

    Args:
        repository: Repository of the commits.
        good: Full SHA of the good end.
        bad: Full SHA of the bad end.

    Raises:
        UsageError: They are one commit, or `good` is no ancestor of `bad`; the message names their merge base.
    """
    if good == bad:
        raise UsageError(f"--good and --bad are one commit, {good[:8]}; name two")
    if not repository.is_ancestor(good, bad):
        raise UsageError(_not_before(repository, good, bad))
    first = BisectCommit(sha=good, subject=repository.subject(good), parents=len(repository.parents(good)), side="good")
    later = [
        BisectCommit(sha=commit.sha, subject=commit.subject, parents=commit.num_parents)
        for commit in repository.between(good, bad)
    ]
    last = BisectCommit(sha=later[-1].sha, subject=later[-1].subject, parents=later[-1].parents, side="bad")
    return (first, *later[:-1], last)


def _not_before(repository: Repository, good: str, bad: str) -> str:
    if repository.is_ancestor(bad, good):
        return f"wanted --good before --bad, found {good[:8]} after {bad[:8]}; swap them"
    base = repository.merge_base(good, bad)
    advice = f"their merge base is {base[:8]}: is that one good? --good {base[:8]}" if base else "they share no commit"
    return f"wanted a --good that {bad[:8]} comes from, found {good[:8]} on another branch; {advice}"


PATCH_BYTES = 200_000


def read_culprit(repository: Repository, state: BisectState) -> Culprit | None:
    """Changes of the commit that was found; None if the search has not found one."""
    if state.first_bad is None:
        return None
    place = [suspect.sha for suspect in state.suspects].index(state.first_bad)
    before = state.suspects[place - 1].sha
    trees = repository.tree(before), repository.tree(state.first_bad)
    return Culprit(
        files=tuple(
            FileChange(path=path, added=plus, removed=minus) for path, plus, minus in repository.counts(*trees)
        ),
        patch=repository.patch(*trees)[:PATCH_BYTES].decode(errors="replace"),
        inside=_merge_commands(repository, state),
    )


def _merge_commands(repository: Repository, state: BisectState) -> tuple[str, ...]:
    """Commands that search inside the merge that was found, one for each branch that it merged."""
    assert state.first_bad is not None, state.id
    first, *merged = repository.parents(state.first_bad)
    starts = ((repository.merge_base(first, each), each) for each in merged)
    return tuple(bisection(state.metric, start, each) for start, each in starts if start not in (None, each))
