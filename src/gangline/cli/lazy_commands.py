"""A typer group that imports a command only when it is called: `--help` costs no more than typer itself."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command before it is imported."""

    name: str
    help: str
    section: str


def lazy_group(entries: Sequence[CommandEntry], package: str) -> type[TyperGroup]:
    """Group class over `entries`; command `x` is in module `package.x`, as `command` or as a typer `app`.

    A `Command` next to `command` is the command's class, if not typer's.
    """
    table = {entry.name: entry for entry in entries}

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the signature is typer's
            return list(table)

        def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:  # noqa: ARG002  # typer's
            return _load(table[cmd_name], package) if cmd_name in table else None

        def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the signature is typer's
            for section in dict.fromkeys(entry.section for entry in entries):
                with formatter.section(section):
                    formatter.write_dl([(e.name, e.help) for e in entries if e.section == section])

    return LazyGroup


def _load(entry: CommandEntry, package: str) -> TyperCommand | TyperGroup:
    gc.disable()  # hardly anything of what is imported is garbage; looking for it takes a sixth of `gangline plan`
    module = import_module(f"{package}.{entry.name}")
    app: typer.Typer = getattr(module, "app", None) or _single(module)
    command = get_command(app)
    gc.freeze()
    gc.enable()
    command.name = entry.name
    assert isinstance(command, (TyperCommand, TyperGroup))
    return command


def _single(module: Any) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=getattr(module, "Command", None))(module.command)
    return app
