"""`gangline new`: a model repository to start from."""

import re
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import JsonOption
from gangline.cli.output import print_json
from gangline.cli.templates import render
from gangline.errors import UsageError
from gangline.units import format_bytes

_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


def command(
    name: Annotated[str, typer.Argument(help="Folder to make, and the project's name.")],
    *,
    template: Annotated[str, typer.Option("--template", help="Which one to start from.")] = "model",
    json: JsonOption = False,
) -> None:
    """Make a git repository with a model, its line.toml and a first commit."""
    target = Path(name)
    project = target.name
    if not _NAME.fullmatch(project):
        raise UsageError(f"wanted a name of [a-z][a-z0-9-], at most 20 characters, found {project!r}; try demo")
    if target.exists():
        raise UsageError(f"wanted a name that is free, found {target} there already; choose another or remove it")
    made = _write(render(template, name=project), target)
    _first_commit(target)
    if json:
        print_json({"path": str(target.resolve()), "files": [str(path) for path in made]})
        return
    for path in made:
        typer.echo(f"  {target / path}  {format_bytes((target / path).stat().st_size)}")
    typer.echo(f"next: cd {target} && gangline plan && gangline run && gangline report --open")


def _write(texts: dict[str, str], target: Path) -> list[Path]:
    """Files made, relative to `target`."""
    target.mkdir(parents=True)
    for name, text in texts.items():
        (target / name).write_text(text, "utf-8")
    return sorted(Path(name) for name in texts)


def _first_commit(target: Path) -> None:
    """A repository with one commit; without a git identity the files stay uncommitted, and that is said."""
    _git(target, "init", "-q", "-b", "main")
    _git(target, "add", "--all")
    done = _git(target, "commit", "-q", "-m", "A model and its line", check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git commit failed"])[-1]
        typer.echo(f"not committed ({reason}): git config user.name, user.email, then git commit", err=True)


def _git(target: Path, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    try:
        done = subprocess.run(["git", "-C", str(target), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError("wanted git on the PATH, found none; install git, then call gangline new again") from error
    if check and done.returncode:
        raise UsageError(f"git {arguments[0]} in {target}: {done.stderr.strip()}")
    return done
