"""A program that a Python process starts: what it is called, and whether its end says all about what ran in it.

Standard library only. The failure of some programs is their starter's own business, and counts for nothing: tools of
the system, programs other than Python that an installed package starts, and what torch's compiler starts.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from .origins import FileOrigins
from .processes import PROGRAM, own_program
from .programs import PLAIN_COMMAND, TOOLS, Programs, find_program
from .shells import MOST_SCRIPT_BYTES, ShellCall, loses_failures, read_call, runs_tools_alone

FORWARD = frozenset({
    "catatonit", "env", "mpiexec", "mpirun", "nice", "nohup", "numactl", "orterun", "prterun", "setsid", "srun",
    "stdbuf", "taskset", "time", "timeout", "tini", "uv", "xargs",
})  # fmt: skip
"""Programs that fail when what they start fails."""
LOSES = (
    "a failure of a program that it runs may not be its own; `set -e` at its beginning changes that, for pipelines in"
    " bash `set -eo pipefail`"
)
_MOST_LETTERS = 100


class StartedProgram(NamedTuple):
    """A program that was started."""

    program: str
    """File name of the program or its script, for patterns."""
    what: str
    """Its command, shortened."""
    is_python: bool
    """It reports by itself."""
    counts: bool
    """Its failure is one of the rank."""
    hides: bool
    """Where it starts other programs, nothing is known of their failures."""
    unseen: str = ""
    """Why failures below it may be lost, whatever it starts; empty: they are not."""


class StartedPrograms:
    """Describes the programs that one process starts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._places = places = FileOrigins(environ)
        self._programs = Programs(
            environment=(*places.packages, *places.environment), declared=places.declared, environ=environ,
            variable="GANGLINE_PROCESSES",
        )  # fmt: skip

    def describe(self, paths: Sequence[Any], words: Sequence[Any], cwd: Any, environ: Any) -> StartedProgram:
        """The program that the system finds by one of `paths`; arguments are those of `_posixsubprocess.fork_exec`."""
        path, cwd = os.fsdecode(paths[0]), os.fsdecode(cwd or "")
        given = self._environ if environ is None else _variables(environ)
        return self._describe(
            path if len(paths) == 1 else os.path.basename(path), list(map(os.fsdecode, words)), cwd, given
        )

    def holds(self, traceback: TracebackType | None) -> bool:
        """Code that is neither of a package nor of Python itself ran when an exception was raised."""
        while traceback is not None:
            if self._is_of_program(traceback.tb_frame.f_code.co_filename):
                return True
            traceback = traceback.tb_next
        return False

    def _describe(self, path: str, words: list[str], cwd: str, environ: Mapping[str, str]) -> StartedProgram:
        program = find_program(path, cwd, environ) or path
        interpreter, flags = self._programs.interpreter(program, words, environ)
        call = read_call([interpreter, *flags, *([] if interpreter == program else [program])])
        if call is not None and call.text is not None and PLAIN_COMMAND.fullmatch(call.text):
            inner = call.text.split()
            if inner and find_program(inner[0], cwd, environ) is not None:  # else a builtin of the shell
                return self._describe(inner[0], inner, cwd, environ)
        caller = self._caller()
        is_python = self._programs.reports_itself(program, words, environ)
        is_tool = self._programs.is_tool(program, words) or (
            call is not None and call.text is not None and runs_tools_alone(call.text, tools=TOOLS)
        )
        counts = not self._programs.is_compiler(caller) and (is_python or (self._is_of_program(caller) and not is_tool))
        if is_python:
            name = what = own_program(words)
            if not name:
                name = self._environ.get(PROGRAM, "python")
                what = f"a process of {name}"
        else:
            name = os.path.basename(call.script if call is not None and call.script else program)
            what = " ".join([name, *words[1:]])
        return StartedProgram(
            program=name[:_MOST_LETTERS], what=what[:_MOST_LETTERS], is_python=is_python, counts=counts,
            hides=counts and not is_python and call is None and name not in FORWARD,
            unseen=LOSES if call is not None and counts and self._loses_failures(call, cwd) else "",
        )  # fmt: skip

    def _loses_failures(self, call: ShellCall, cwd: str) -> bool:
        return loses_failures(call, tools=TOOLS, read=lambda path: self._read(os.path.abspath(os.path.join(cwd, path))))

    def _read(self, path: str) -> str | None:
        """A script; None: it is none of the program's files, too large, or not there."""
        try:
            if path.startswith(self._places.declared) and os.stat(path).st_size <= MOST_SCRIPT_BYTES:
                with open(path, encoding="utf-8", errors="replace") as file:
                    return file.read()
        except OSError:
            pass
        return None

    def _caller(self) -> str:
        """File of the code that starts a program, without frames of the standard library and of this folder."""
        frame = sys._getframe(1)  # noqa: SLF001  # importing `inspect` would slow every program down
        while frame.f_back is not None and not self._is_of_program(frame.f_code.co_filename):
            if self._places.origin(frame.f_code.co_filename) == "environment":
                break
            frame = frame.f_back
        return frame.f_code.co_filename

    def _is_of_program(self, path: str) -> bool:
        return not path.startswith("<frozen ") and self._places.origin(path) in ("code", "elsewhere")


def _variables(environ: Any) -> Mapping[str, str]:
    if isinstance(environ, Mapping):
        return {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
    return dict(os.fsdecode(each).split("=", 1) for each in environ)
