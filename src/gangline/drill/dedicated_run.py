"""A run made for one drill: started, struck from a thread, driven to its end; Ctrl-C stops it as any other run."""

import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from gangline.drill.execute import DrillContext, DrillOutcome, execute_drill, record_result
from gangline.drill.setup import DrillSetup, launcher_opener, open_setup
from gangline.drill.target import DrillRequest
from gangline.errors import CancelledError, ConfigError, GanglineError, UsageError
from gangline.launch.protocol import GangEvent
from gangline.line.record import runs
from gangline.line.record.observer import SilentObserver
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.results.unreported_metrics import reported_no_steps
from gangline.line.run.cancel import cancel_run
from gangline.line.stages.run_line import run_line
from gangline.spec.config.line import Line
from gangline.spec.measurements import Drill
from gangline.spec.record import Record, StageInfo
from gangline.storage.objects.protocol import ObjectStore


def drill_in_dedicated_run(desk: DrillContext, wish: DrillRequest) -> tuple[Record, Drill]:
    """Start a run for this drill alone, strike it from a thread, and drive it to its end here: Ctrl-C stops it."""
    begun: Future[Record | None] = Future()
    observer = _StartObserver(begun, desk.tell)
    with open_setup(wish, desk.store) as rig, ThreadPoolExecutor(1, thread_name_prefix="drill") as pool:
        struck = pool.submit(_inject_when_started, desk, wish, begun, rig)
        ended: GanglineError | None = None
        try:
            run_line(
                desk.repo, site=desk.site, environ=desk.environ, overrides=_overrides(desk, wish), again=True,
                observer=observer, open_launcher=launcher_opener(rig),
            )  # fmt: skip
        except GanglineError as error:
            ended = error
        finally:
            observer.over()
        done = struck.result()
    if done is None:
        raise ended or UsageError("the run was done before anything could be struck; run the drill again")
    settled = record_result(desk, wish, runs.find_run(desk.store, observer.run), done)
    if isinstance(ended, CancelledError):
        raise ended
    if ended is not None:
        desk.tell(f"run      {ended}")
    return settled


def _overrides(desk: DrillContext, wish: DrillRequest) -> tuple[str, ...]:
    """A run of the same program and plan with nothing but the training in it.

    Its longest time without a save differs by less than a second from the line's: another plan, so no earlier run's
    training can be taken for it, and nothing that training depends on.
    """
    question = resolve_request(desk.repo, commit=None, overrides=(), strategy=None)
    line = question.line
    train = line.train
    _require_support(wish, line)
    _require_step_reports(wish, question)
    _require_reported_steps(wish, question, desk.store)
    if wish.step is not None and wish.step >= train.steps:
        raise UsageError(f"--step {wish.step}: the run has {train.steps} steps; strike between 1 and {train.steps - 1}")
    unsaved = train.checkpoint.max_unsaved_seconds + secrets.randbelow(999_999) / 1_000_000
    alone = f"train.checkpoint.max_unsaved_seconds={unsaved:.6f}"
    return ("evaluate.seeds=1", 'prove.plan="off"', "prove.replay_steps=0", alone)


def _require_support(wish: DrillRequest, line: Line) -> None:
    """Refuse what this line has nothing to strike for, before a run is made of it."""
    if wish.kind.rig == "task" and line.project.task is None:
        raise ConfigError(
            f"drill {wish.kind.name} is refused: project.command owns its loop and its batches; "
            "a line with project.task can be struck from within"
        )
    if wish.kind.name == "resize" and not isinstance(line.train.ranks, tuple):
        raise ConfigError(
            "drill resize is refused: the line trains on one number of ranks; "
            "train.ranks = [1, 3] in line.toml makes it elastic"
        )
    if wish.kind.rig == "nodes" and line.train.ranks == 1:
        raise ConfigError("drill lose-node is refused: one rank is no two nodes; train.ranks = 2 in line.toml works")


def _require_step_reports(wish: DrillRequest, question: RunRequest) -> None:
    """Refuse a program of which nothing says that it tells its steps: they are told through gangline alone."""
    command = question.line.project.command
    if command is None or any("gangline" in each for each in command):
        return
    if not question.repository.mentions(question.tree, "gangline", besides=("line.toml", "*.md", ".gitignore")):
        raise ConfigError(
            f"drill {wish.kind.name} is refused: it strikes at a step, which gangline.train.Program or Session tells, "
            "and no file of the commit names gangline; use one of them, or project.task. Where an installed package "
            "tells them, a comment that names gangline will do"
        )


def _require_reported_steps(wish: DrillRequest, question: RunRequest, store: ObjectStore) -> None:
    """Refuse a program that told of no step when this commit was trained before: it would train whole, unstruck."""
    project, command = question.line.project, list(question.line.project.command or ())
    for record in runs.list_runs(store, project=project.name, commit=question.commit):
        same = record.commit.tree == question.tree and record.inputs.values.get("project.command") == command
        if same and reported_no_steps(record):
            raise ConfigError(
                f"drill {wish.kind.name} is refused: it strikes at a step, and the program told of none in run "
                f"{record.run.id} of this commit; gangline.train.Program or Session tells them, or use project.task"
            )


def _inject_when_started(
    desk: DrillContext, wish: DrillRequest, begun: "Future[Record | None]", rig: DrillSetup
) -> DrillOutcome | None:
    """In a thread: strike once the run trains; a run that cannot be struck is stopped, it was made for that alone."""
    record = begun.result()
    if record is None:
        return None
    try:
        return execute_drill(desk, wish, record, rig)
    except GanglineError:
        cancel_run(desk.repo, record.run.id, site=desk.site, environ=desk.environ, reason="the drill was refused")
        raise


class _StartObserver(SilentObserver):
    """Tells the striking thread of the run once its gang starts, and the person what happens until then."""

    def __init__(self, begun: "Future[Record | None]", tell: Callable[[str], None]) -> None:
        self._begun = begun
        self._tell = tell
        self._record: Record | None = None
        self.run = ""

    def run_started(self, record: Record) -> None:
        self._record, self.run = record, record.run.id
        self._tell(f"run      {record.run.id}, a fresh one for this drill")

    def stage_ended(self, name: str, info: StageInfo) -> None:
        if name in {"plan", "train"}:
            self._tell(f"{name:<9}{info.message}")

    def progress(self, stage: str, event: GangEvent) -> None:  # noqa: ARG002  # the protocol's name for it
        if stage == "train" and not self._begun.done():
            self._begun.set_result(self._record)

    def over(self) -> None:
        """The run has ended, perhaps before it trained."""
        if not self._begun.done():
            self._begun.set_result(None)
