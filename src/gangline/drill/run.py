"""`gangline drill`: from a name to an evaluated, recorded drill, in a run of its own or in one that trains now.

A run for one drill is driven to its end here while a thread injects the fault; Ctrl-C stops it like any run. The table
of all drills says promise, observation, times and verdict.
"""

import secrets
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gangline.drill.catalogue import DRILLS, DrillRequest, choose_drill
from gangline.drill.execute import DrillContext, DrillOutcome, execute_drill, record_result
from gangline.drill.setup import DrillSetup, NoSetup, launcher_opener, open_setup
from gangline.errors import CancelledError, ConfigError, GanglineError, UsageError
from gangline.launch.protocol import GangEvent
from gangline.line.record import runs
from gangline.line.record.observer import SilentObserver
from gangline.line.request.run_request import RunRequest, resolve_request
from gangline.line.run.cancel import cancel_run
from gangline.line.stages.run_line import run_line
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.measurements import Drill
from gangline.spec.record import Record, StageInfo
from gangline.spec.run_flags import reported_no_steps
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore

_HEAD = ("drill", "row", "promised", "seen", "detect", "recover", "verdict")
_FIXED = (11, 3, 0, 0, 7, 7, 10)
"""Widths of the columns; the two of width 0 share the rest."""
_LEAST = 22
_VERDICTS = ("HELD", "HELD LATE", "BROKEN", "NOT STRUCK", "SKIPPED")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedDrill:
    """A drill that cannot run here."""

    name: str
    row: str
    skipped: str
    """The reason."""


DrillRow = Drill | SkippedDrill


def drill_table(found: Sequence[DrillRow], *, width: int) -> list[str]:
    """Lines of at most `width` columns, at least 96; long texts are wrapped."""
    text = max(_LEAST, (width - sum(_FIXED) - 2 * (len(_FIXED) - 1)) // 2)
    widths = [each or text for each in _FIXED]
    lines = _row(_HEAD, widths)
    lines.append("  ".join("-" * each for each in widths))
    for each in found:
        lines += _row(_cells(each), widths)
    return [*lines, _totals(found)]


def verdict_text(found: DrillRow) -> str:
    """HELD, HELD LATE, BROKEN, NOT STRUCK or SKIPPED."""
    return "SKIPPED" if isinstance(found, SkippedDrill) else found.result.replace("_", " ").upper()


def describe_seconds(value: float | None) -> str:
    """`1.2 s`, or `-` for None."""
    return "-" if value is None else f"{value:.1f} s"


def _cells(found: DrillRow) -> tuple[str, ...]:
    promised = DRILLS[found.name].target.removeprefix("target").removeprefix(":").strip()
    if isinstance(found, SkippedDrill):
        return found.name, found.row, promised, found.skipped, "-", "-", verdict_text(found)
    detect, recover = describe_seconds(found.detect_seconds), describe_seconds(found.recover_seconds)
    return found.name, found.row, promised, _observation(found), detect, recover, verdict_text(found)


def _observation(drill: Drill) -> str:
    """The broken promise, or the detection with its cost."""
    if drill.reason:
        return drill.reason
    lost = [f"{drill.lost_steps} steps lost"] if drill.lost_steps else []
    samples = []
    if drill.lost_samples is not None:
        samples = [f"{drill.lost_samples} samples lost, {drill.repeated_samples} twice"]
    return "; ".join([*([drill.seen] if drill.seen else []), *lost, *samples])


def _row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = (each[number] if number < len(each) else "" for each in wrapped)
        lines.append("  ".join(p.ljust(w) for p, w in zip(parts, widths, strict=True)).rstrip())
    return lines


def _totals(found: Sequence[DrillRow]) -> str:
    verdicts = [verdict_text(each) for each in found]
    counts = [f"{verdicts.count(word)} {word.lower()}" for word in _VERDICTS]
    drills = [each for each in found if isinstance(each, Drill)]
    lost = sum(each.lost_samples or 0 for each in drills)
    twice = sum(each.repeated_samples or 0 for each in drills)
    counted = sum(each.lost_samples is not None for each in drills)
    samples = f"samples lost {lost}, taken twice {twice}, counted in {counted} of {len(drills)} trainings"
    return f"{', '.join(counts)}; {samples}"


EXIT_CODES = {"held": 0, "held_late": 0, "broken": 60, "not_struck": 10}


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillReport:
    """Result of one drill."""

    run: str
    drill: Drill
    """Drill as it is recorded."""
    replay: str
    """Command that repeats the drill."""

    @property
    def exit_code(self) -> int:
        """0 held, 60 broken, 10 not injected."""
        return EXIT_CODES[self.drill.result]


def drill(
    name: str,
    *,
    repo: Path,
    site: Site,
    environ: Mapping[str, str],
    run: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    seconds: float | None = None,
    seed: int = 1,
    tell: Callable[[str], None] = print,
) -> DrillReport:
    """Run the drill `name`, report each line once it is known, and write the result into the run's record.

    Args:
        name: One of `catalogue.DRILLS`.
        repo: Folder of the line.
        site: Must allow the drill.
        environ: For secret references.
        run: A run that trains on this machine now; None: a fresh one of HEAD, driven to its end.
        rank: Target of the fault.
        step: The fault is injected after this step.
        seconds: Duration of a lasting fault.
        seed: Chooses what is None.
        tell: Gets every line.

    Raises:
        ConfigError: The drill is refused.
        UsageError: No such run, rank or step.
        GanglineError: The fresh run failed before it trained.
    """
    request = DrillRequest(kind=choose_drill(name, site), rank=rank, step=step, seconds=seconds, seed=seed)
    context = DrillContext(
        repo=repo, site=site, environ=environ, store=site_paths.open_site_store(repo, site, environ), tell=tell
    )
    record, found = drill_in_dedicated_run(context, request) if run is None else _drill_in_run(context, request, run)
    again = _replay(found, request, run)
    text = f"{verdict_text(found)} {found.reason}".rstrip()
    tell(f"result   {text}    replay: {again}")
    return DrillReport(run=record.run.id, drill=found, replay=again)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillReports:
    """Results of `drill_all`."""

    reports: tuple[DrillReport, ...]
    skipped: tuple[SkippedDrill, ...]

    @property
    def exit_code(self) -> int:
        """60 if a drill broke, else 10 if one was not injected; skipped drills do not count."""
        return max(report.exit_code for report in self.reports)


def drill_all(
    *,
    repo: Path,
    site: Site,
    environ: Mapping[str, str],
    seed: int = 1,
    tell: Callable[[str], None] = print,
    width: int = 120,
) -> DrillReports:
    """Run all drills, each in a fresh run of HEAD, with a line at begin and end of each, and a table.

    Drills that cannot run here are skipped with their reason. All lines of a drill are shown if it did not hold.

    Raises:
        ConfigError: All drills are refused.
        GanglineError: A fresh run failed before it trained; the table so far is shown.
    """
    reports: list[DrillReport] = []
    found: list[DrillRow] = []
    refused: ConfigError | UsageError | None = None
    try:
        for number, kind in enumerate(DRILLS.values(), 1):
            tell(f"{number:>2}/{len(DRILLS)}  {kind.name:<12} {kind.text}")
            began, lines = time.monotonic(), list[str]()
            try:
                report = drill(kind.name, repo=repo, site=site, environ=environ, seed=seed, tell=lines.append)
                reports.append(report)
                found.append(report.drill)
            except (ConfigError, UsageError) as error:
                refused = error
                found.append(SkippedDrill(name=kind.name, row=kind.row, skipped=str(error)))
            _report_outcome(found[-1], lines, tell, took=time.monotonic() - began)
    finally:
        if reports:
            for line in ("", *drill_table(found, width=width)):
                tell(line)
    if refused is not None and not reports:
        raise refused
    return DrillReports(reports=tuple(reports), skipped=tuple(each for each in found if isinstance(each, SkippedDrill)))


def _report_outcome(found: DrillRow, lines: Sequence[str], tell: Callable[[str], None], *, took: float) -> None:
    head = f"       {verdict_text(found):<12} in {took:.0f} s"
    if isinstance(found, SkippedDrill):
        tell(f"{head}  {found.skipped}")
        return
    tell(f"{head}  detect {describe_seconds(found.detect_seconds)}  recover {describe_seconds(found.recover_seconds)}")
    if found.result != "held":
        for line in lines:
            tell(f"       {line}")


def _drill_in_run(context: DrillContext, request: DrillRequest, run: str) -> tuple[Record, Drill]:
    """Inject the fault into a run that another process drives."""
    if request.kind.setup:
        raise ConfigError(f"drill {request.kind.name} is refused: it changes a gang before its start; omit --run")
    record = runs.find_run(context.store, run)
    if record.run.state == "ended" or record.gang is None:
        raise ConfigError(f"run {record.run.id} is not training; without --run the drill starts a run of its own")
    outcome = execute_drill(context, request, record, NoSetup())
    return record_result(context, request, runs.find_run(context.store, record.run.id), outcome)


def _replay(found: Drill, request: DrillRequest, run: str | None) -> str:
    words = [f"gangline drill {found.name}"]
    words += [f"--run {run}"] if run else []
    words += [f"--{key} {value}" for key, value in found.arguments.items() if key in {"rank", "step", "seconds"}]
    return " ".join([*words, f"--seed {request.seed}"])


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
