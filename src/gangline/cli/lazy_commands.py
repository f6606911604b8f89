"""A typer group that imports a command only when it is called: `--help` costs no more than typer itself."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
        def get_params(self, ctx: Any) -> list[Any]:
            return _plain_values(super().get_params(ctx))

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
    command = _with_plain_values(get_command(app))
    gc.freeze()
    gc.enable()
    command.name = entry.name
    assert isinstance(command, (TyperCommand, TyperGroup))
    return command


class _PlainValues:
    """Values as typer has them, without pydantic where that changes nothing: what was not given, and plain text. Typer
    imports it for every parameter, which takes longer than the arithmetic of a plan."""

    def __init__(self, runtime_param: Callable[[], Any]) -> None:
        self._runtime_param = runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several, wanted = param.multiple or param.nargs == -1, param.type_descriptor
        if value is None:
            return () if several else None
        is_text = isinstance(value, str) and wanted.annotation is str and not wanted.is_choice
        if not several and (value is param.default or is_text):
            return value
        return self._runtime_param().coerce(value, param=param, ctx=ctx)


def _plain_values(params: Sequence[Any]) -> list[Any]:
    """Parameters of a command; those that typer made give plain values."""
    for each in params:
        if hasattr(each, "get_runtime_param") and "get_runtime_param" not in vars(each):
            each.get_runtime_param = partial(_PlainValues, each.get_runtime_param)
    return list(params)


def _with_plain_values(command: Any) -> Any:
    """`command` whose parameters, its `--help` among them, give plain values."""
    params_of = command.get_params
    command.get_params = lambda ctx: _plain_values(params_of(ctx))
    for each in getattr(command, "commands", {}).values():
        _with_plain_values(each)
    return command


def _single(module: Any) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=getattr(module, "Command", None))(module.command)
    return app
