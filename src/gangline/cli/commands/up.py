"""`gangline up`: the servers around the line, on this machine: S3, Prometheus, Grafana, the service."""

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption
from gangline.cli.output import answer
from gangline.cli.terminal import say
from gangline.errors import ConfigError
from gangline.report.text import clean

if TYPE_CHECKING:
    from gangline.stack.home import StackHome
    from gangline.stack.lifecycle import ServerStatus

_MARKS = {"started": "✓", "running": "✓", "absent": "–", "failed": "✗"}


def command(
    *,
    repo: RepoOption = HERE,
    s3: Annotated[
        Literal["minio", "versitygw"] | None,
        typer.Option(
            "--s3", help="S3 server to start.", show_default="the one used before, else versitygw, else minio"
        ),
    ] = None,
    drive: Annotated[
        bool, typer.Option("--drive", help="Let the service run new commits of this repository by itself.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Start on loopback what is installed and not running yet; exit 10 where a server did not come up."""
    from gangline.cli.workspace import find_repo
    from gangline.stack.home import StackHome
    from gangline.stack.lifecycle import bring_up

    home, environ = StackHome.of(find_repo(repo.resolve()) or repo.resolve()), os.environ
    try:
        rows = bring_up(home, environ=environ, s3=s3, drive=drive, say=(lambda _row: None) if json else _say)
    except KeyboardInterrupt:
        say("interrupted: gangline up continues, gangline down stops what was started", err=True)
        raise
    answer({"site": str(home.site), "servers": rows}, _next_steps(home, rows), json=json)
    if any(row.state == "failed" for row in rows):
        raise typer.Exit(ConfigError.exit_code)


def _say(row: "ServerStatus") -> None:
    say(f"{_MARKS[row.state]} {row.name:<11}{row.kind:<15}{row.url or row.state:<23}{clean(row.text, 400)}".rstrip())


def _next_steps(home: "StackHome", rows: "list[ServerStatus]") -> str:
    from gangline.stack.lifecycle import board_url

    boards = board_url(rows)
    steps = [
        f"\nexport GANGLINE_SITE={home.site}",
        "gangline run                              # its series go to Prometheus, its record to the store",
    ]
    if boards:
        steps.append(f"{boards:<40}  # the boards")
    return "\n".join([*steps, "gangline down                             # stops these, and keeps their data"])
