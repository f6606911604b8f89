"""Options that many commands share, and how a command with subcommands begins, spelled once."""

from pathlib import Path
from typing import Annotated

import typer

RepoOption = Annotated[
    Path, typer.Option("--repo", "-C", help="Model repository; its folders above are searched for line.toml.")
]
PathArgument = Annotated[Path, typer.Argument(help="Model repository.", show_default="this folder")]
SiteOption = Annotated[
    Path | None,
    typer.Option(
        "--site",
        help="Read this site.toml; default: that of GANGLINE_SITE, the user's, the system's, or plain defaults.",
    ),
]
FabricOption = Annotated[
    Path | None,
    typer.Option("--fabric", help="Read this fabric.toml; default: that of GANGLINE_FABRIC, the user's, the system's."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON on stdout: one document, or lines while following.")
]
RunArgument = Annotated[str, typer.Argument(help="Run id, or the beginning of one.", metavar="RUN")]
LastRunArgument = Annotated[
    str | None, typer.Argument(help="Run id, or the beginning of one.", metavar="RUN", show_default="the newest run")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change the effective line: train.seed=2; may be repeated."),
]
FormatOption = Annotated[str, typer.Option("--format", help="Format of the output: text, markdown or html.")]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="File to write instead of stdout.")]
DatabaseOption = Annotated[
    str | None, typer.Option("--database", help="SQLite file or postgresql:// URL, in place of serve.database.")
]
CommitOption = Annotated[str | None, typer.Option("--commit", help="Commit, branch or tag.", show_default="HEAD")]
AgainOption = Annotated[bool, typer.Option("--again", help="Start another attempt, even where one has ended.")]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Place of the ranks: local, slurm or kubernetes.", show_default="the site's"),
]
StrategyOption = Annotated[
    str | None, typer.Option("--strategy", help="Use this strategy in place of the line's train.strategy.")
]
AliveOption = Annotated[
    Path | None,
    typer.Option("--alive", metavar="FILE", help="File to touch after each pass, for a probe of Kubernetes."),
]
HERE = Path()


def command_group(text: str) -> typer.Typer:
    """A command that has subcommands; `text` is its help."""
    return typer.Typer(help=text, rich_markup_mode=None, add_completion=False, no_args_is_help=True)
