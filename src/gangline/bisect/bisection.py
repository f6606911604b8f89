"""A bisection: its request, history, metric and step, its forecast, and its state in the store.

Nothing is trained before `Bisection.run`. The state is one document, keyed by the request, so the same request
resumes.
"""

import math
from base64 import b32encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from gangline.bisect.bisector import BisectLimits, Bisector, seconds_each
from gangline.bisect.decisions import steps_left
from gangline.bisect.history import read_history
from gangline.bisect.recorded_values import MetricAtStep, cheapest_step, next_curve_step, step_to_measure
from gangline.bisect.repository_measurer import RepositoryMeasurer
from gangline.errors import UsageError
from gangline.git.repository import Repository
from gangline.line.request.run_lookup import look_up_run
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.run.driver import RunWorkspace
from gangline.spec.bisect import BisectState
from gangline.spec.codec import canonical
from gangline.spec.measurements import Better
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import now


def bisect_id(project: str, *question: object) -> str:
    """The same question has the same id."""
    word = b32encode(sha256(canonical([project, *question])).digest()).decode().lower()[:6]
    return f"{project}-bisect-{word}"


def state_key(project: str, name: str) -> str:
    return f"bisects/{project}/{name}/state.json"


def store_state(store: ObjectStore, state: BisectState) -> None:
    store.put(state_key(state.project, state.id), state.to_json())


def load_state(store: ObjectStore, project: str, name: str) -> BisectState | None:
    blob = store.get(state_key(project, name))
    return None if blob is None else BisectState.from_json(blob.data)


OnState = Callable[[BisectState], None]
LOSS = "loss"
"""The metric that every step has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectRequest:
    """What somebody wants to know, in their words."""

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
    """What a search may cost, before it begins."""

    trainings: int
    """That it probably needs: values that the ends lack, and one for each step of the search."""
    hours: float | None
    """Held by ranks, as the budget counts them; None: nothing was measured yet."""


@dataclass(kw_only=True)
class Bisection:
    """A search as it stands, ready to go on."""

    desk: RunWorkspace
    state: BisectState
    bounds: BisectLimits
    target: str | None = None

    @property
    def forecast(self) -> BisectForecast:
        ends = (self.state.suspects[0], self.state.suspects[-1])
        missing = sum(max(0, self.state.seeds - len(each.values)) for each in ends)
        trainings = missing + steps_left(self.state.sides)
        seconds = seconds_each(self.state, self.bounds)
        return BisectForecast(trainings=trainings, hours=None if seconds is None else seconds * trainings / 3600)

    def run(self, *, tell: OnState) -> BisectState:
        """To its ending; `tell` hears of every new state.

        Where a short training cannot tell the ends apart, a whole one is tried.
        """
        state = self._run(self.state, tell)
        if state.ending in {"same", "unfit"} and state.at < state.steps and state.asked_at is None:
            note = f"at step {state.at} the bad end is not worse: measured at the last step, {state.steps}"
            whole = replace(_without_values(state), at=state.steps, notes=(note,))
            state = self._run(whole, tell)
        return state

    def _run(self, state: BisectState, tell: OnState) -> BisectState:
        witness = RepositoryMeasurer(desk=self.desk, wanted=_metric_at_step(state), target=self.target)

        def changed(new: BisectState) -> None:
            store_state(self.desk.store, new)
            tell(new)

        return Bisector(state, witness, self.bounds, keep=changed).run()


def prepare(desk: RunWorkspace, asked: BisectRequest) -> Bisection:
    """The search as far as it got before, or a new one.

    Raises:
        UsageError: No such commit, ends in the wrong order, a metric or a step that no run of them can have.
        ConfigError: A line of one of the ends that does not hold.
    """
    repository = Repository.at(desk.repo)
    good, bad = (_commit(desk, repository, name) for name in (asked.good, asked.bad))
    history = read_history(repository, good, bad)
    ends = [resolve_request(desk.repo, commit=sha, overrides=(), strategy=None) for sha in (good, bad)]
    metric, at = _split(asked.metric)
    project = ends[0].line.project.name
    name = bisect_id(project, metric, at, good, bad, asked.seeds, asked.error)
    records = [_whole_run(desk, sha) for sha in (good, bad)]
    _require_metric(metric, records)
    state = load_state(desk.store, project, name)
    if state is None or state.ending == "unfit":  # what was wrong with an end may be mended
        steps = min(each.line.train.steps for each in ends)
        state = BisectState(
            id=name, project=project, metric=metric, at=_step(desk, records, metric, at, steps), steps=steps,
            better=_better(ends, records, metric), seeds=asked.seeds, error=asked.error, created=now(),
            suspects=history, asked_at=at,
        )  # fmt: skip
        if at is None:
            state = replace(state, at=cheapest_step(sorted({state.at, steps}), partial(_trainings, desk, state)))
    plan = next((record.plan for record in records if record and record.plan), None)
    if plan is not None:
        state = replace(state, resource="gpu" if plan.device == "cuda" else "cpu")
    bounds = BisectLimits(
        first_seed=ends[0].line.train.seed,
        budget_seconds=None if asked.budget_hours is None else asked.budget_hours * 3600,
        training_seconds=_seconds(records, state.at),
    )
    return Bisection(desk=desk, state=_with_recorded_values(desk, state), bounds=bounds, target=asked.target)


def _with_recorded_values(desk: RunWorkspace, state: BisectState) -> BisectState:
    """With what records know of both ends, for the forecast."""
    witness = RepositoryMeasurer(desk=desk, wanted=_metric_at_step(state))
    suspects = list(state.suspects)
    for place in (0, len(suspects) - 1):
        answer = witness.known(suspects[place].sha)
        values: dict[str, float | str] = {
            str(seed): value for seed, value in answer.values.items() if math.isfinite(value)
        }
        suspects[place] = replace(suspects[place], values=suspects[place].values | values)
    return state if state.ending else replace(state, suspects=tuple(suspects))


def _trainings(desk: RunWorkspace, state: BisectState, at: int) -> int:
    """How many a search at this step probably needs, beside what records know there."""
    witness = RepositoryMeasurer(desk=desk, wanted=_metric_at_step(replace(state, at=at)))
    known = [len(witness.known(each.sha).values) for each in state.suspects]
    ends = sum(max(0, state.seeds - count) for count in (known[0], known[-1]))
    return ends + math.ceil(math.log2(1 + known[1:-1].count(0)))


def _metric_at_step(state: BisectState) -> MetricAtStep:
    return MetricAtStep(metric=state.metric, at=state.at, since=state.created)


def _without_values(state: BisectState) -> BisectState:
    """The same question with nothing known."""
    suspects = tuple(
        replace(each, values={}, origin="", runs=(), reason="", doubt=None, odd=False) for each in state.suspects
    )
    return replace(state, suspects=suspects, ending=None, first_bad=None)


def _commit(desk: RunWorkspace, repository: Repository, name: str) -> str:
    """A commit as git names it, else the commit of a run."""
    try:
        return repository.commit(name)
    except UsageError as no_commit:
        try:
            return look_up_run(desk.store, desk.repo, name).commit.sha
        except UsageError:
            raise no_commit from None


def _split(text: str) -> tuple[str, int | None]:
    metric, sign, step = text.partition("@")
    if not metric or (sign and not (step.isdigit() and int(step) > 0)):
        raise UsageError(f"wanted METRIC or METRIC@STEP, found {text!r}; loss@500 and eval_loss work")
    return metric, int(step) if sign else None


def _step(desk: RunWorkspace, records: list[Record | None], metric: str, at: int | None, steps: int) -> int:
    """Where to measure: as asked, at a place of the course for the metric that is one; else where courses part."""
    if at is None:
        return step_to_measure(desk.store, records[0], records[1], steps=steps)
    if at > steps:
        raise UsageError(f"{metric}@{at}: trainings have {steps} steps (train.steps); name a step up to that")
    return next_curve_step(at, steps) if metric == LOSS else at


def _require_metric(metric: str, records: list[Record | None]) -> None:
    """A run that got to its end without the metric will not have it next time, either."""
    for record in records:
        ended = record is not None and record.run.verdict in {"passed", "refused"}
        if record and ended and metric not in {*record.metrics, record.curve.metric, LOSS}:
            has = ", ".join(sorted(record.metrics))
            raise UsageError(f"wanted a metric of {record.run.id}, found {metric!r}; it has {has}")


def _whole_run(desk: RunWorkspace, sha: str) -> Record | None:
    """The newest run of a commit that trained to its end."""
    try:
        record = look_up_run(desk.store, desk.repo, sha)
    except UsageError:
        return None
    return record if record.plan is not None and record.curve.points else None


def _better(ends: list[RunRequest], records: list[Record | None], metric: str) -> Better | None:
    """As a gate or a record says; losses are better when lower; else unknown."""
    gates = [gate.better for each in ends for gate in each.line.gate.quality if gate.metric == metric]
    told = [record.metrics[metric].better for record in records if record and metric in record.metrics]
    known = next((each for each in (*gates, *told) if each), None)
    return known or ("lower" if metric == LOSS or metric.endswith("_loss") else None)


def _seconds(records: list[Record | None], at: int) -> float | None:
    """Held by the ranks of one training up to `at`, starting and stopping included: what is cut are steps."""
    each = [seconds for record in records if record and (seconds := _rank_seconds(record, at)) is not None]
    return sum(each) / len(each) if each else None


def _rank_seconds(record: Record, at: int) -> float | None:
    if record.plan is None or not record.plan.measured.wall_seconds:
        return None
    measured = record.plan.measured
    cut = (measured.step_seconds or 0.0) * max(0, record.curve.points[-1].step - at)
    return max(0.0, (measured.wall_seconds or 0.0) - cut) * record.plan.world_size
