"""Programs that a process starts and that do not report their reads, from audit events of Python.

Standard library only. Left out: a Python that reports itself, tools of the system or the environment that read no
training data, and what torch's compiler starts. A tool is recognized by its folder, too: a repository may bring a
program of the same name.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .shells import SHELLS

EVENTS = frozenset({"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"})
"""`os.spawn` is an event on Windows only: elsewhere these functions fork and then call `os.exec`."""
TOOLS = re.compile(
    r"(?:\w+-linux-gnu-)?(?:ar|as|c\+\+|cc|clang|clang\+\+|g\+\+|gcc|ld|nm|objdump|ranlib|strip)(?:-[\d.]+)?"
    r"|chmod|cuobjdump|date|echo|false|getconf|git|hipcc|hipconfig|hostname|id|ifconfig|ip|kill|ldconfig|lscpu|lspci"
    r"|mkdir|ninja|nproc|numactl|nvcc|nvdisasm|nvidia-smi|pgrep|ps|ptxas|rm|rmdir|rocm-smi|rocm_agent_enumerator"
    r"|rocminfo|sleep|stty|sysctl|touch|tput|true|uname|uptime|which|which\.debianutils|whoami"
)
_OF_GIT = frozenset({
    "--version", "branch", "config", "describe", "log", "ls-files", "remote", "rev-list", "rev-parse", "status",
    "symbolic-ref", "version",
})  # fmt: skip
"""Commands of git that neither print nor fetch the content of files."""
_TOOL_FOLDERS = (
    "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/lib", "/usr/local/cuda",
    "/opt/nvidia", "/opt/rocm", "/nix/store",
)  # fmt: skip
PLAIN_COMMAND = re.compile(r"[\w./:,@%+= -]+")
"""A command for a shell of plain words: without a second command, redirection, quotes or variables."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_NO_CALLERS = (_HERE + "/", os.path.join(os.path.dirname(os.__file__), "subprocess.py"))


class Programs:
    """Examines the programs that one process starts."""

    def __init__(
        self, *, environment: Iterable[str], declared: tuple[str, ...], environ: Mapping[str, str],
        variable: str = "GANGLINE_RAN",
    ) -> None:  # fmt: skip
        """
        Args:
            environment: Folders of the rank's packages and programs; all folders end with a slash.
            declared: Folders whose files this module may read; others would count as an undeclared read.
            environ: Variables of this process.
            variable: Names the file to which this process and the ones that it starts report.
        """
        self._environment = tuple(environment)
        self._tools = (*self._environment, *(f"{each}/" for each in _TOOL_FOLDERS))
        self._declared, self._environ, self._variable = declared, environ, variable
        self._python = os.path.realpath(sys.executable)

    def started(self, event: str, arguments: Sequence[Any]) -> str | None:
        """Name of the program about to be started; None: it does not exist, reports itself, or reads no data."""
        if event == "os.system":
            return self._unseen("/bin/sh", ["sh", "-c", os.fsdecode(arguments[0])], "", self._environ)
        path, words, *rest = arguments
        cwd, given = (rest[0], rest[1]) if event == "subprocess.Popen" else (None, rest[0])
        environ = self._environ if given is None else {os.fsdecode(k): os.fsdecode(v) for k, v in given.items()}
        return self._unseen(os.fsdecode(path), list(map(os.fsdecode, words)), os.fsdecode(cwd or ""), environ)

    def leader(self) -> str | None:
        """Name of the program that was started as the rank, such as a shell; None: it is this Python."""
        leader = os.getsid(0)
        try:
            executable = sys.executable if leader in (0, os.getpid()) else os.readlink(f"/proc/{leader}/exe")
        except OSError:
            return None
        return None if os.path.realpath(executable) == self._python else os.path.basename(executable)

    def _unseen(self, path: str, words: list[str], cwd: str, environ: Mapping[str, str]) -> str | None:
        program = find_program(path, cwd, environ)
        if program is None or self.is_compiler(calling_file()):
            return None
        name = os.path.basename(program)
        if name in SHELLS and words[1:2] == ["-c"] and len(words) == 3 and PLAIN_COMMAND.fullmatch(words[2]):
            inner = words[2].split()
            if inner and (
                TOOLS.fullmatch(inner[0]) or find_program(inner[0], cwd, environ)
            ):  # else a builtin of the shell
                return self._unseen(inner[0], inner, cwd, environ)
        return None if self.is_tool(program, words) or self.reports_itself(program, words, environ) else name

    def is_compiler(self, caller: str) -> bool:
        """True: the code that starts a program is torch's compiler."""
        return "/torch/_inductor/" in caller and caller.startswith(self._environment)

    def is_tool(self, found: str, words: Sequence[str]) -> bool:
        """True: a tool of the system or the environment that reads no training data."""
        name = os.path.basename(found)
        of_tools = TOOLS.fullmatch(name) is not None and found.startswith(self._tools)
        return of_tools and (name != "git" or not _OF_GIT.isdisjoint(words))

    def reports_itself(self, found: str, words: list[str], environ: Mapping[str, str]) -> bool:
        """True: the program is this Python, with the start-up folder on its path."""
        python, flags = self.interpreter(found, words, environ)
        return (
            os.path.realpath(python) == self._python
            and not _ignores_path(flags)
            and environ.get(self._variable) == self._environ.get(self._variable)
            and _HERE in environ.get("PYTHONPATH", "").split(os.pathsep)
        )

    def interpreter(self, found: str, words: list[str], environ: Mapping[str, str]) -> tuple[str, list[str]]:
        """(program, arguments) that the system starts for `found`: for a script, the interpreter of its first line."""
        head = _head(found) if found.startswith(self._declared) else []
        first, second, *_ = *head, b"", b""
        if not first.startswith(b"#!"):
            return found, words[1:]
        if second.startswith(b"'''exec'"):  # of installers, where the path is too long for a first line
            first = second.replace(b'"$0" "$@"', b"").replace(b"'''exec'", b"#!")
        name, *flags = os.fsdecode(first[2:]).split() or [""]
        if os.path.basename(name) == "env" and flags:
            name, *flags = find_program(flags[0], "", environ) or "", *flags[1:]
        return name.strip("\"'"), flags


def find_program(path: str, cwd: str, environ: Mapping[str, str]) -> str | None:
    """Absolute path of the file that the system will start; None: there is none."""
    folders = [""] if "/" in path else environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        full = os.path.abspath(os.path.join(cwd, folder, path))
        if os.path.isfile(full) and os.access(full, os.X_OK):
            return full
    return None


def _ignores_path(words: Iterable[str]) -> bool:
    """True: a Python with these arguments ignores PYTHONPATH or `sitecustomize`."""
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        if len(word) < 2 or word[0] != "-":
            return False
        options, value, _ = re.split("([cmWX]|$)", word[1:], maxsplit=1)
        if any(each in options for each in "IES"):
            return True
        if value in ("c", "m"):
            return False
        skip = value != "" and word.endswith(value)
    return False


def _head(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read(1024).splitlines()
    except OSError:
        return []


def calling_file() -> str:
    """File of the code that caused an event, without frames of `subprocess` and of this folder."""
    frame = sys._getframe(1)  # noqa: SLF001  # importing `inspect` would slow every program down
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NO_CALLERS):
        frame = frame.f_back
    return frame.f_code.co_filename
