"""`gangline compare`: a commit as it is and with some keys changed, by one command and in one report."""

from typing import Annotated

import typer

from gangline.cli.options import (
    HERE,
    CommitOption,
    FormatOption,
    JsonOption,
    OutOption,
    PathArgument,
    RepoOption,
    SetOption,
    SiteOption,
    TargetOption,
)
from gangline.cli.view.comparison_page import require_format, show_comparison
from gangline.cli.view.run_view import attended_view, choose_view
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GateError, UsageError
from gangline.line.record.observer import Observer, ObserverRelay, SilentObserver
from gangline.line.request.run_request import resolve_request
from gangline.line.results.undeclared_reads import changed_since
from gangline.line.stages.run_line import RunArguments, run_line
from gangline.spec.record import Record


class LastRecord(ObserverRelay):
    """Keeps the record that a run ended with, and whether it had ended before."""

    record: Record | None = None
    had_ended = False

    def run_started(self, record: Record) -> None:
        self.had_ended = record.run.state == "ended"
        super().run_started(record)

    def run_ended(self, record: Record) -> None:
        self.record = record
        super().run_ended(record)


def command(
    path: PathArgument = HERE,
    *,
    set_: SetOption = None,
    commit: CommitOption = None,
    target: TargetOption = None,
    fail_on_worse: Annotated[
        bool, typer.Option("--fail-on-worse", help="Exit 60 when the changed keys make it worse, or it is not known.")
    ] = False,
    format_: FormatOption = "text",
    out: OutOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Train a commit as it is, then with the keys of --set, and judge the second run against the first.

    Both are runs as any other: whichever has ended is not trained again, unless undeclared files that it read have
    changed since, and the same command resumes an interrupted one. What their gates say is shown and decides nothing
    here. Three seeds in [evaluate] give the first run a band.
    """
    require_format(format_)
    if not set_:
        raise UsageError("wanted keys to change, found none; --set optimizer.rule=muon --set optimizer.lr=0.02 is one")
    workspace = open_workspace(repo / path, site)
    as_it_is, changed = (
        resolve_request(workspace.repo, commit=commit, overrides=each, strategy=None) for each in ((), set_)
    )
    if as_it_is.run_id(1) == changed.run_id(1):
        raise UsageError("--set changes nothing of the line: wanted values that it does not have")
    base, this = (_run(workspace, commit, each, target=target, quiet=json) for each in ((), tuple(set_)))
    show_comparison(workspace, base, this, format_=format_, out=out, json=json, fail_on_worse=fail_on_worse)


def _run(
    workspace: Workspace, commit: str | None, overrides: tuple[str, ...], *, target: str | None, quiet: bool
) -> Record:
    """Run it to its end; one that has ended is run again if files that it read have changed since."""

    def to_its_end(observer: Observer) -> Record:
        asked: RunArguments = {"commit": commit, "overrides": overrides}
        last = _run_once(workspace, asked, target=target, observer=observer)
        record = last.record
        assert record is not None, "a run that has ended was shown to its observer"
        if not last.had_ended or not changed_since(record):
            return record
        observer.note(f"{record.run.id} is run again")
        return _run_once(workspace, {**asked, "again": True}, target=target, observer=observer).record or record

    if quiet:
        return to_its_end(SilentObserver())
    with attended_view(choose_view(json=False)) as view:
        return to_its_end(view)


def _run_once(workspace: Workspace, asked: RunArguments, *, target: str | None, observer: Observer) -> LastRecord:
    """Run it to its end; a refusal by a gate is a result, too."""
    last = LastRecord(observer)
    try:
        run_line(workspace.repo, site=workspace.site, environ=workspace.environ, target=target, observer=last, **asked)
    except GateError:
        if last.record is None:
            raise
    return last
