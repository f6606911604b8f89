"""`gangline`: the commands by name, and how every one of them ends: an exit code and, on error, one message.

A command is imported only when it is called: `--help` costs no more than typer itself.
"""

import errno
import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gangline import __version__
from gangline.cli.terminal import say
from gangline.errors import CancelledError, GanglineError, StillRunning, StorageError

_RUN, _LOOK, _MODEL, _PUSH, _CARE = "Run", "Look", "Models", "From a push", "Care"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command before it is imported."""

    name: str
    help: str
    section: str


ENTRIES = (
    CommandEntry("doctor", "What works on this machine, and what works without the rest.", _RUN),
    CommandEntry("new", "Make a model repository to start from.", _RUN),
    CommandEntry("init", "Write the line.toml of a repository that has scripts of its own.", _RUN),
    CommandEntry("plan", "Show which plan a line gets and why, launching nothing.", _RUN),
    CommandEntry("run", "Take a commit through all stages, or resume its run.", _RUN),
    CommandEntry("compare", "Train a commit with and without changed keys, and judge the two.", _RUN),
    CommandEntry("search", "Search better settings of a commit, within hours or money, and judge the best.", _RUN),
    CommandEntry("emit", "Print what a cluster or a pipelines server would be given.", _RUN),
    CommandEntry("stage", "Run one stage of a run; for Jenkins, KFP and other drivers.", _RUN),
    CommandEntry("cancel", "Stop a run and its gang; returns when nothing is left running.", _RUN),
    CommandEntry("join", "Add a worker of this site to a run with a parameter server.", _RUN),
    CommandEntry("resize", "Give an elastic run that trains more or fewer ranks.", _RUN),
    CommandEntry("approve", "Let a fork's run execute its code, after reading it.", _RUN),
    CommandEntry("list", "List runs, newest first.", _LOOK),
    CommandEntry("show", "Show one run's record.", _LOOK),
    CommandEntry("follow", "Watch a run that another process drives.", _LOOK),
    CommandEntry("logs", "Print what ranks wrote.", _LOOK),
    CommandEntry("report", "Draw the report of a run.", _LOOK),
    CommandEntry("artifacts", "List what a run left, its program's outputs too, or fetch it.", _LOOK),
    CommandEntry("bisect", "Find the commit that made a metric worse.", _LOOK),
    CommandEntry("diff", "Compare two runs: numbers against bands, and what changed.", _LOOK),
    CommandEntry("profile", "Profile steps of a run while it trains, or show what was found.", _LOOK),
    CommandEntry("track", "Show what trackers have of a run, and write it to them again.", _LOOK),
    CommandEntry("data", "Make, list, check and fetch versions of data sets.", _MODEL),
    CommandEntry("promote", "Point an alias at a model version, after verifying all of it.", _MODEL),
    CommandEntry("verify", "Check signature and digests of a model, checkpoint or run.", _MODEL),
    CommandEntry("infer", "Verify a model version, load it, and answer requests on this machine.", _MODEL),
    CommandEntry("score", "Let a model version answer every row of a data set, on this machine.", _MODEL),
    CommandEntry("federate", "Take part in federated training: join, approve code, see the members.", _MODEL),
    CommandEntry("keys", "List the signing keys of this site.", _MODEL),
    CommandEntry("serve", "Serve webhooks, the API and the pages of a site.", _PUSH),
    CommandEntry("hook", "Build what is pushed to a bare repository of this machine.", _PUSH),
    CommandEntry("token", "Give, list and end tokens of the service.", _PUSH),
    CommandEntry("up", "Start the servers around the line on this machine: S3, Prometheus, Grafana, service.", _PUSH),
    CommandEntry("down", "Stop the servers that `up` started, and nothing else.", _PUSH),
    CommandEntry("drill", "Inject a fault on purpose; measure detection and recovery.", _CARE),
    CommandEntry("sweep", "Delete gangs whose run has ended or has no driver.", _CARE),
    CommandEntry("placer", "Give queued gangs of a cluster their servers, whole gangs only.", _CARE),
    CommandEntry("store", "Check or copy the object store.", _CARE),
    CommandEntry("fabric", "The network: what there is, how it changes speed and cost, what is slow in it.", _CARE),
    CommandEntry("metrics", "Check or export the metric series of runs.", _CARE),
)

_LONGEST_LINE = 4000
"""Most characters of a message."""
_KINDS = {CancelledError.exit_code: "stopped", StillRunning.exit_code: "still running"}
"""Endings that are no errors."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


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
    for param in params:
        if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
            param.get_runtime_param = partial(_PlainValues, param.get_runtime_param)
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


app = typer.Typer(
    cls=lazy_group(ENTRIES, "gangline.cli.commands"),
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"gangline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[  # acts in its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn a git commit into a trained, measured, reproducible model.

    Start with `gangline doctor`, then `gangline new demo` or, in a model repository, `gangline run`.
    """


def main() -> None:
    """Entry point: run the command of `sys.argv` and exit with the code its error class gives."""
    try:
        app()
    except GanglineError as error:
        _say(_KINDS.get(error.exit_code, "error"), error)
        _trace_if_asked()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("interrupted", err=True)
        sys.exit(130)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            _end_as_bug(error)
        _say("error", StorageError(f"wanted to write {error.filename or 'the output'}, found: {error.strerror}"))
        _trace_if_asked()
        sys.exit(StorageError.exit_code)
    except Exception as error:  # the last place: a bug ends as one message and exit 1
        _end_as_bug(error)


def _end_as_bug(error: Exception) -> NoReturn:
    _say(f"internal error: {type(error).__name__}", error)
    if not _trace_if_asked():
        say("This is a bug in gangline; GANGLINE_DEBUG=1 prints the traceback.", err=True)
    sys.exit(GanglineError.exit_code)


def _say(kind: str, error: Exception) -> None:
    say("\n".join(line[:_LONGEST_LINE].rstrip() for line in f"{kind}: {error}".split("\n")), err=True)


def _trace_if_asked() -> bool:
    asked = bool(os.environ.get("GANGLINE_DEBUG"))
    if asked:
        say(traceback.format_exc(), err=True, nl=False)
    return asked
