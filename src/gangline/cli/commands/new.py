"""`gangline new`: a model repository to start from."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gangline.cli.options import JsonOption
from gangline.cli.output import print_json
from gangline.cli.templates import TEMPLATES, listing, render
from gangline.cli.terminal import say
from gangline.errors import StorageError, UsageError
from gangline.git.command import git_output, own_environment, run_git
from gangline.spec.config.grammar import SLUG
from gangline.units import format_bytes

_TEMPLATES = (
    "Template to start from; the option alone lists them: "
    + "; ".join(f"{name}, {text}" for name, text in TEMPLATES.items())
    + "."
)


class Command(TyperCommand):
    """A bare `--template` lists what there is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """List the templates for `--template` without a value."""
        if args[-1:] == ["--template"]:
            say(listing())
            raise typer.Exit
        return list(super().parse_args(ctx, args))


def command(
    name: Annotated[str, typer.Argument(help="Folder to make, and the project's name.")],
    *,
    template: Annotated[str, typer.Option("--template", help=_TEMPLATES)] = "model",
    json: JsonOption = False,
) -> None:
    """Make a git repository with a model, its line.toml and a first commit."""
    target = Path(name)
    if not SLUG.fullmatch(target.name):
        raise UsageError(f"wanted a name of [a-z][a-z0-9-], at most 20 characters, found {target.name!r}; try demo")
    if target.exists():
        raise UsageError(f"wanted a name that is free, found {target} there already; choose another or remove it")
    files = render(template, name=target.name)
    _write(target, files)
    _first_commit(target)
    if json:
        print_json({"path": str(target.resolve()), "files": sorted(files)})
        return
    for path, text in sorted(files.items()):
        say(f"  {target / path}  {format_bytes(len(text.encode()))}")
    say(f"next: cd {target} && gangline plan && gangline run && gangline report --open")


def _write(target: Path, files: dict[str, str]) -> None:
    try:
        target.mkdir(parents=True)
        for path, text in files.items():
            (target / path).write_text(text, "utf-8")
    except OSError as error:
        raise StorageError(f"wanted to write {target}, found: {error.strerror}; try another place") from error


def _first_commit(target: Path) -> None:
    """A repository with one commit; where git knows no author, one made by gangline, and that is said."""
    kept = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_")
    environ = own_environment({key: value for key, value in os.environ.items() if key.startswith(kept)})
    git_output(target, "init", "-q", "-b", "main", environ=environ)
    git_output(target, "add", "--all", environ=environ)
    commit = ("commit", "-q", "-m", "A model and its line")
    if run_git(target, *commit, environ=environ).returncode:
        gangline = {"user.name": "gangline", "user.email": "gangline@localhost"}
        git_output(target, *commit, environ=environ, settings=gangline)
        say("git knows no author here, so gangline committed; yours: git config --global user.name", err=True)
