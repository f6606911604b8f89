"""`gangline drill`: from a name to an evaluated, recorded drill, in a run of its own or in one that trains now."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gangline.drill.catalogue import DRILLS, choose_drill
from gangline.drill.dedicated_run import drill_in_dedicated_run
from gangline.drill.execute import DrillContext, execute_drill, record_result
from gangline.drill.setup import NoSetup
from gangline.drill.summary_table import DrillRow, SkippedDrill, describe_seconds, drill_table, verdict_text
from gangline.drill.target import DrillRequest
from gangline.errors import ConfigError, UsageError
from gangline.line.record import runs
from gangline.spec.config.site import Site
from gangline.spec.measurements import Drill
from gangline.spec.record import Record
from gangline.storage import site_paths

EXIT_CODES: dict[Literal["held", "held_late", "broken", "not_struck"], int] = {
    "held": 0, "held_late": 0, "broken": 60, "not_struck": 10
}  # fmt: skip


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
