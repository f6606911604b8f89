"""`gangline show`: one record, as a page, a line, or JSON."""

from math import ceil
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import UsageError
from gangline.report.run.terminal import one_line, page
from gangline.spec.record import Record

if TYPE_CHECKING:
    from gangline.report.progress import StageProgress


def command(
    run: LastRunArgument = None,
    *,
    oneline: Annotated[
        bool, typer.Option("--oneline", help="Print one line: verdict and numbers, or how far the run is.")
    ] = False,
    ends_in: Annotated[
        bool,
        typer.Option(
            "--ends-in",
            help="Print a second line below `--oneline`: the seconds until the gang's last step, where steps tell.",
        ),
    ] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show what happened to a run."""
    if ends_in and not oneline:
        raise UsageError("--ends-in is an option of gangline show --oneline")
    workspace = open_workspace(repo, site)
    record = workspace.run(run)
    if json:
        print_json(record)
    elif not oneline:
        say(page(record))
    else:
        progress = _progress(workspace, record)
        say(one_line(record, doing=_doing(progress)))
        if ends_in and progress and progress.ends_in_seconds is not None:
            say(str(ceil(progress.ends_in_seconds)))


def _progress(workspace: Workspace, record: Record) -> "StageProgress | None":
    if record.run.state == "ended":
        return None
    from gangline.line.run.watch import read_progress

    return read_progress(workspace.repo, record, site=workspace.site, environ=workspace.environ)


def _doing(progress: "StageProgress | None") -> str:
    """`train ddp-2 62/120 loss 2.71 · ETA 7 s` of a running run."""
    sentence = progress.sentence() if progress else ""
    return f"{progress.stage} {sentence}" if progress and sentence else ""
