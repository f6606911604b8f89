"""`gangline track`: what the site's trackers have of a run, and how to write it to them again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption, command_group
from gangline.cli.output import answer, print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import CapacityError, ConfigError, StorageError, UsageError
from gangline.line.record.runs import list_runs
from gangline.line.run.lease import is_held, read_lease
from gangline.line.run.run_models import mirror_models
from gangline.metrics.record_values import price_at
from gangline.report.text import clean
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.trackers.operations import all_points, tracked_run
from gangline.trackers.protocol import Mirrored, TrackedRun
from gangline.trackers.stored_run import stored_events
from gangline.trackers.writer_process import BATCH, WriterFailed, WriterProcess, trackers_of, writer_settings
from gangline.units import format_bytes, format_seconds

app = command_group("Look at the mirrors of runs in MLflow, Weights & Biases and TensorBoard, and complete them.")


@app.command()
def status(
    run: LastRunArgument = None, *, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False
) -> None:
    """Ask each tracker of the site what it has of a run; exit 40 if one does not answer, 10 if it refuses."""
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    names = _trackers(workspace, record)
    newest = max((point.time_ms for point in all_points(record, stored_events(workspace.store, record))), default=None)
    rows, failures = [], []
    for name in names:
        row: dict[str, Any] = {"tracker": name, "run": record.run.id}
        try:
            with _writer(workspace, name) as process:
                found = process.look(_run_of(workspace, record, name))
            row |= {"place": found.place if found else None, "step": found.step if found else None}
            row["state"] = _state(found, record, newest)
        except (WriterFailed, ConfigError) as error:
            failures.append(error)
            row["state"] = f"not known: {error}"
        rows.append(row)
    said = " · ".join(clean(f"{row['tracker']}: {row['state']}") for row in rows)
    answer(rows, said or _NOT_MIRRORED, json=json)
    _raise_first(failures)


_NOT_MIRRORED = "no tracker of this site gets this run: its project.track says so"


@app.command()
def push(
    run: LastRunArgument = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Write all runs of the store.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Write a run to the trackers of the site again, all of it; harmless where nothing is missing.

    A run that a driver works on is left to it. Exit 40 if a tracker does not answer, 10 if it refuses.
    """
    if all_ and run is not None:
        raise UsageError(f"wanted a run or --all, found both: {run} and --all")
    workspace = open_workspace(repo, site)
    records = list(list_runs(workspace.store)) if all_ else [workspace.run(run)]
    rows, failures = [], []
    for record in records:
        if is_held(read_lease(workspace.store, record.prefix), now=time.time()):
            text = f"{record.run.id} is written by its driver, which works on it now"
            if not all_:
                raise CapacityError(f"{text}; run this again once it has ended")
            say(text, err=True)
            continue
        for name in _trackers(workspace, record):
            row: dict[str, Any] = {"tracker": name, "run": record.run.id}
            try:
                row |= {"points": _push(workspace, record, name), "written": True}
                row["text"] = f"{row['points']:,} points written"
            except (WriterFailed, ConfigError) as error:
                failures.append(error)
                row |= {"written": False, "text": f"not written: {error}"}
            rows.append(row)
            if not json:
                say(f"{row['run']}  {name}: {clean(row['text'])}")
        _push_models(workspace, record)
    if json:
        print_json(rows)
    elif not rows:
        say(_NOT_MIRRORED)
    _raise_first(failures)


def _trackers(workspace: Workspace, record: Record) -> list[str]:
    """Trackers that get the run; raises ConfigError if the site has none at all."""
    if not workspace.site.track:
        raise ConfigError("wanted a tracker, found no [track.NAME] in site.toml; docs/guides/trackers.md shows one")
    return trackers_of(workspace.site, record.inputs.values.get("project.track"))[0]


@contextmanager
def _writer(workspace: Workspace, name: str) -> Iterator[WriterProcess]:
    settings = writer_settings(workspace.repo, workspace.site, name, environ=workspace.environ)
    process = WriterProcess(settings, table=workspace.site.track[name], environ=workspace.environ)
    try:
        process.open()
        yield process
        process.close()
    finally:
        process.end()


def _run_of(workspace: Workspace, record: Record, name: str) -> TrackedRun:
    return tracked_run(record, experiment=workspace.site.track[name].experiment, price=price_at(workspace.site))


def _push(workspace: Workspace, record: Record, name: str) -> int:
    """Write all of a run; the number of its points."""
    run, num_points = _run_of(workspace, record, name), 0
    points = all_points(record, stored_events(workspace.store, record))
    with _writer(workspace, name) as process:
        process.begin(run)
        while batch := list(islice(points, BATCH)):
            process.write(batch)
            num_points += len(batch)
        if record.run.state == "ended":
            process.finish(run)
    return num_points


def _push_models(workspace: Workspace, record: Record) -> None:
    """Write the version that the run published, and the aliases of its model; says what trackers had otherwise."""
    published = stage(record, "publish").outputs
    if "model" in published:
        model, version = str(published["model"]), int(published["version"])
        for text in mirror_models(
            workspace.store, model, version, repo=workspace.repo, site=workspace.site, environ=workspace.environ
        ):
            say(clean(text), err=True)


def _state(found: Mirrored | None, record: Record, newest: int | None) -> str:
    """`118 of 120 steps, 4 s behind`, `current`, `offline folder, 0.6 MB`."""
    if found is None:
        return "has nothing of this run"
    if found.step is None and found.size_bytes is not None:
        return f"offline folder, {format_bytes(found.size_bytes)}"
    if newest is None or found.time_ms is None:
        return "has the run, and no points"
    if found.time_ms >= newest:
        return "current"
    of = f" of {record.plan.steps:,}" if record.plan else ""
    return f"{found.step:,}{of} steps, {format_seconds((newest - found.time_ms) / 1000)} behind"


def _raise_first(failures: list[WriterFailed | ConfigError]) -> None:
    """End with the first failure: 10 where somebody has to change something, 40 where another try may do."""
    for error in failures:
        refused = isinstance(error, ConfigError) or error.is_refused
        raise (ConfigError if refused else StorageError)(f"not every tracker answered as wanted: {error}") from error
