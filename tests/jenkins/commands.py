"""What a script of a step would start: run by a real shell with a `gangline` that only says how it was called."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gangline.cli.main import app

Misused: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for a call that is wrong, whose name is its own affair."""
SPY = """#!/bin/sh
printf '%s\\0' "$#" "$@" >> "$SPY"
"""


def called(script: str, environ: dict[str, str], folder: Path) -> list[list[str]]:
    """Argument vectors of every `gangline` that `script` starts in a shell with `environ`."""
    spy = folder / "gangline"
    spy.write_text(SPY)
    spy.chmod(0o755)
    said = folder / "said"
    said.write_text("")
    inside = {"PATH": f"{folder}:/usr/bin:/bin", "SPY": str(said), **environ}
    subprocess.run(["/bin/sh", "-xe", "-c", script], cwd=folder, env=inside, check=True, capture_output=True)
    return list(_vectors(said.read_bytes().decode().split("\0")[:-1]))


def _vectors(words: list[str]) -> Iterator[list[str]]:
    """Each begins with how many there are."""
    while words:
        size = int(words[0])
        yield words[1 : size + 1]
        words = words[size + 1 :]


def parse(arguments: list[str]) -> Any:
    """The context of the command that these arguments name, parsed by the real command line.

    Raises:
        Misused: There is no such command or option.
    """
    command = typer.main.get_command(app).get_command(None, arguments[0])
    if command is None:
        raise Misused(arguments[0])
    return command.make_context(arguments[0], arguments[1:])
