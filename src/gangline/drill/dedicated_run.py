"""A run for one drill: driven to its end here while a thread injects the fault; Ctrl-C stops it like any run."""

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


def drill_in_dedicated_run(context: DrillContext, request: DrillRequest) -> tuple[Record, Drill]:
    """Start a run for this drill, inject the fault from a thread, and drive the run to its end."""
    started: Future[Record | None] = Future()
    observer = _StartObserver(started, context.tell)
    with open_setup(request, context.store) as setup, ThreadPoolExecutor(1, thread_name_prefix="drill") as pool:
        pending = pool.submit(_inject_when_started, context, request, started, setup)
        ended: GanglineError | None = None
        try:
            run_line(
                context.repo, site=context.site, environ=context.environ, again=True,
                overrides=_overrides(context, request),
                observer=observer, open_launcher=launcher_opener(setup),
            )  # fmt: skip
        except GanglineError as error:
            ended = error
        finally:
            observer.over()
        outcome = pending.result()
    if outcome is None:
        raise ended or UsageError("the run ended before the fault could be injected; run the drill again")
    result = record_result(context, request, runs.find_run(context.store, observer.run), outcome)
    if isinstance(ended, CancelledError):
        raise ended
    if ended is not None:
        context.tell(f"run      {ended}")
    return result


def _overrides(context: DrillContext, request: DrillRequest) -> tuple[str, ...]:
    """Overrides for a run of the same program and plan with only the training in it.

    Its longest time without a save differs by less than a second from the line's: that makes another plan, so that no
    earlier training is reused, and does not change the training.
    """
    run_request = resolve_request(context.repo, commit=None, overrides=(), strategy=None)
    line = run_request.line
    train = line.train
    _require_target(request, line)
    _require_step_reports(request, run_request)
    _require_reported_steps(request, run_request, context.store)
    if request.step is not None and request.step >= train.steps:
        raise UsageError(
            f"--step {request.step}: the run has {train.steps} steps; inject between 1 and {train.steps - 1}"
        )
    unsaved = train.checkpoint.max_unsaved_seconds + secrets.randbelow(999_999) / 1_000_000
    alone = f"train.checkpoint.max_unsaved_seconds={unsaved:.6f}"
    return ("evaluate.seeds=1", 'prove.plan="off"', "prove.replay_steps=0", alone)


def _require_target(request: DrillRequest, line: Line) -> None:
    """Refuse a drill that this line cannot have, before a run is made."""
    if request.kind.setup == "task" and line.project.task is None:
        raise ConfigError(
            f"drill {request.kind.name} is refused: project.command has a loop and batches of its own; "
            "use a line with project.task"
        )
    if request.kind.name == "resize" and not isinstance(line.train.ranks, tuple):
        raise ConfigError(
            "drill resize is refused: the line trains on one number of ranks; "
            "train.ranks = [1, 3] in line.toml makes it elastic"
        )
    if request.kind.setup == "nodes" and line.train.ranks == 1:
        raise ConfigError(
            "drill lose-node is refused: one rank does not make two nodes; set train.ranks = 2 in line.toml"
        )


def _require_step_reports(request: DrillRequest, run_request: RunRequest) -> None:
    """Refuse a command without a file that names gangline, because only gangline reports steps."""
    command = run_request.line.project.command
    if command is None or any("gangline" in each for each in command):
        return
    if not run_request.repository.mentions(run_request.tree, "gangline", besides=("line.toml", "*.md", ".gitignore")):
        raise ConfigError(
            f"drill {request.kind.name} is refused: it needs steps, which gangline.train.Program or Session reports, "
            "and no file of the commit names gangline; use one of them, or project.task. Where an installed package "
            "reports them, a comment that names gangline is enough"
        )


def _require_reported_steps(request: DrillRequest, run_request: RunRequest, store: ObjectStore) -> None:
    """Refuse a program that reported no steps in an earlier run of this commit: it would never be reached."""
    project, command = run_request.line.project, list(run_request.line.project.command or ())
    for record in runs.list_runs(store, project=project.name, commit=run_request.commit):
        same = record.commit.tree == run_request.tree and record.inputs.values.get("project.command") == command
        if same and reported_no_steps(record):
            raise ConfigError(
                f"drill {request.kind.name} is refused: it injects at a step, and the program reported none in run "
                f"{record.run.id} of this commit; report them by gangline.train.Program or Session, or use project.task"
            )


def _inject_when_started(
    context: DrillContext, request: DrillRequest, started: "Future[Record | None]", setup: DrillSetup
) -> DrillOutcome | None:
    """Inject once the run trains; if that is refused, stop the run, which was made only for this. Runs in a thread."""
    record = started.result()
    if record is None:
        return None
    try:
        return execute_drill(context, request, record, setup)
    except GanglineError:
        cancel_run(
            context.repo, record.run.id, site=context.site, environ=context.environ, reason="the drill was refused"
        )
        raise


class _StartObserver(SilentObserver):
    """Hands the run to the injecting thread once its gang starts, and reports what happens until then."""

    def __init__(self, started: "Future[Record | None]", tell: Callable[[str], None]) -> None:
        self._started = started
        self._report_recovery = tell
        self._record: Record | None = None
        self.run = ""

    def run_started(self, record: Record) -> None:
        self._record, self.run = record, record.run.id
        self._report_recovery(f"run      {record.run.id}, a fresh one for this drill")

    def stage_ended(self, name: str, info: StageInfo) -> None:
        if name in {"plan", "train"}:
            self._report_recovery(f"{name:<9}{info.message}")

    def progress(self, stage: str, event: GangEvent) -> None:  # noqa: ARG002  # the name in the protocol
        if stage == "train" and not self._started.done():
            self._started.set_result(self._record)

    def over(self) -> None:
        """Release the injecting thread: the run has ended, perhaps before it trained."""
        if not self._started.done():
            self._started.set_result(None)
