"""`gangline emit`: what a target would be given, as its own file."""

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from gangline.cli.desk import open_desk
from gangline.cli.options import HERE, LastRunArgument, RepoOption, SiteOption
from gangline.errors import UsageError
from gangline.line.emit import GangKind, emit_gang, emit_pipeline

KINDS = (*get_args(GangKind), "kfp")


def command(
    kind: Annotated[str, typer.Argument(help="One of " + ", ".join(KINDS) + ".", metavar="KIND")],
    run: LastRunArgument = None,
    *,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="Facts that doctor --cluster wrote; no server is asked then.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Let the API server judge it by dry run.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write.", show_default="stdout")] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
) -> None:
    """Print the very objects that a run creates, secrets as names; or the pipeline that drives it."""
    if kind not in KINDS:
        raise UsageError(f"wanted one of {', '.join(KINDS)}, found {kind!r}")
    if (check and kind in ("kfp", "runtime")) or (cluster and kind == "kfp"):
        raise UsageError(f"--check and --cluster are about the objects of a gang; leave them out for {kind}")
    desk = open_desk(repo, site)
    record = desk.run(run)
    if kind == "kfp":
        text = emit_pipeline(desk.repo, record, site=desk.site)
    else:
        text = emit_gang(
            desk.repo,
            record,
            cast(GangKind, kind),
            site=desk.site,
            environ=desk.environ,
            facts_file=cluster,
            check=check,
        )
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, "utf-8")
        typer.echo(out)
