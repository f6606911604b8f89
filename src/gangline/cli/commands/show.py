"""`gangline show`: one record, as a page, a line, or JSON."""

from typing import Annotated

import typer

from gangline.cli.desk import Desk, open_desk
from gangline.cli.options import HERE, JsonOption, LastRunArgument, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.report.terminal import one_line, page
from gangline.spec.record import Record


def command(
    run: LastRunArgument = None,
    *,
    oneline: Annotated[
        bool, typer.Option("--oneline", help="One line: verdict and numbers, or how far it is.")
    ] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show what happened to a run."""
    desk = open_desk(repo, site)
    record = desk.run(run)
    if json:
        print_json(record)
    else:
        say(one_line(record, doing=_doing(desk, record)) if oneline else page(record))


def _doing(desk: Desk, record: Record) -> str:
    """`train ddp-2 62/120 loss 2.71 · ETA 7 s` of a run that goes on."""
    if record.run.state == "ended":
        return ""
    from gangline.line.glance import glance

    progress = glance(desk.repo, record, site=desk.site, environ=desk.environ)
    sentence = progress.sentence() if progress else ""
    return f"{progress.stage} {sentence}" if progress and sentence else ""
