"""Writes `commands.md`, the help of every command: `python -m tools.commands_page docs/reference`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gangline.cli.main import ENTRIES, app

WIDTH = 110
OPENING = """# Commands

Results go to stdout, logs to stderr. `--json` gives one document, or lines while following, by the
[schemas](schemas.md). [Exit codes](exit-codes.md) say what to do next.
Generated from the commands themselves; `make schemas` rewrites it.
"""


def commands_page() -> str:
    """Markdown: a section for each command, in the order of `gangline --help`."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    parts = [OPENING]
    section = ""
    with root.make_context("gangline", [], resilient_parsing=True) as context:
        for entry in ENTRIES:
            if entry.section != section:
                section = entry.section
                parts.append(f"## {section}\n")
            command = root.get_command(context, entry.name)
            assert isinstance(command, (TyperCommand, TyperGroup))
            parts += _sections(command, f"gangline {entry.name}")
    return "\n".join(parts)


def _sections(command: TyperCommand | TyperGroup, name: str) -> Iterator[str]:
    """One for a command, one for each command of a group."""
    with command.make_context(
        name, [], resilient_parsing=True, max_content_width=WIDTH, terminal_width=WIDTH
    ) as context:
        text = command.get_help(context).rstrip()
        yield f"### `{name}`\n\n```text\n{text}\n```\n"
        if isinstance(command, TyperGroup):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert isinstance(found, (TyperCommand, TyperGroup))
                yield from _sections(found, f"{name} {inner}")


if __name__ == "__main__":
    page = Path(sys.argv[1]) / "commands.md"
    page.write_text(commands_page(), "utf-8")
    sys.stdout.write(f"{page}\n")
