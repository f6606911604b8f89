"""Audit of what a Python program of a rank runs: modules by origin, packages by version, files and hosts.

Standard library only and nothing of gangline: any program of a rank loads this file by its path. It appends lines of
JSON to the file that GANGLINE_RAN names. Each line is complete, so that a process that is killed or ends by `os._exit`
keeps its earlier reports. Child processes append to the same file:

    {"event": "python", "version", "prefix", "own", "pid"}                 at the start; own: that of the gang
    {"event": "read" or "listed", ...}                                     files and folders of `file_reads`, once each
    {"event": "host", "name"}                                              a name that was looked up, once each
    {"event": "started", "program"}                                        one whose reads are not seen, once each
    {"event": "search", "pattern"}                                         for files of the code layer, once each
    {"event": "gpu", "name"}                                               a kind that it uses, once each
    {"event": "unseen", "why"}                                             reads were not examined, once each
    {"event": "ran", "prefix", "modules", "packages", "elsewhere", "reads", "listed", "last"}
                                                                           after seconds, minutes, at the end

Files are seen by the audit hook of Python (PEP 578); what native code and other programs open is not, but for two
calls of torch. An audit hook cannot be removed and must not raise: everything in it is guarded, and most events cost a
few comparisons.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from .devices import gpu_names
from .file_reads import SEARCHES, FileReads, Searches, TorchReads
from .origins import FileOrigins, versions
from .programs import EVENTS, Programs
from .report_file import ReportFile

MOST_HOSTS = 20
MOST_PROGRAMS = 20
MOST_ELSEWHERE = 50
MOST_PACKAGES = 1000
_FULL = b'{"event": "unseen", "why": "the report of this rank was full"}\n'
_PREFIX = sys.prefix[:1000]
_FIRST_SECONDS, _GROWTH, _MOST_SECONDS = 2.0, 6, 600.0


class ProgramAudit:
    """Report of this process."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self.due = time.monotonic() + _FIRST_SECONDS
        self._environ = environ
        self._write = ReportFile(path, _FULL).write
        self._places = places = FileOrigins(environ)
        self._look = Programs(
            environment=(*places.packages, *places.environment), declared=places.declared, environ=environ
        )
        self._programs: set[str] = set()
        self._gpus: set[str] = set()
        self._wait = _FIRST_SECONDS
        self._unseen: set[str] = set()
        """Why reads were not examined."""
        self._hosts: set[str] = set()
        self._reported: tuple[int, int, int] | None = None
        self._origins: dict[str, str] = {}
        self._versions: dict[str, tuple[str, str] | None] = {}
        self.reads = FileReads(
            places, report=path, since=_time_of(environ.get("GANGLINE_PLAN")), write=self._write, unseen=self.unseen
        )
        self._torch_reads = TorchReads(self.reads.opened_natively)
        self.searches = Searches(places.code, self._write)

    def unseen(self, why: str) -> None:
        """Reads may not have been examined."""
        if why not in self._unseen:
            self._unseen.add(why)  # first: writing it is an event, too
            self._write({"event": "unseen", "why": why})

    def imports(self) -> None:
        """A module is about to be imported."""
        self._torch_reads.imports()

    def looked_up(self, host: Any) -> None:
        """The address of a host is about to be looked up."""
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if not isinstance(name, str) or name in self._hosts or len(self._hosts) >= MOST_HOSTS:
            return
        self._hosts.add(name)
        if not self._is_own(name.lower()):
            self._write({"event": "host", "name": name[:253]})

    def starts(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Another program is about to be started."""
        if len(self._programs) < MOST_PROGRAMS:
            self._started(self._look.started(event, arguments))

    def lists(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A folder is about to be listed."""
        self.reads.listed(arguments[0])
        self.searches.looked(event, arguments)

    def report(self, *, last: bool = False) -> None:
        """Report the imported modules, if there are new ones since the last report."""
        self.due = time.monotonic() + self._wait
        self._wait = min(self._wait * _GROWTH, _MOST_SECONDS)
        self._report_gpus()
        mark = len(sys.modules), self.reads.num_files, self.reads.num_folders
        if mark == self._reported and not last:
            return
        self._reported = mark
        counts: dict[str, int] = {}
        elsewhere: list[tuple[str, str]] = []
        imported: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            path = _file_of(module) or (_script() if name == "__main__" else None)
            if path is None:
                continue
            origin = self._origins.get(path) or self._origins.setdefault(path, self._origin(path))
            counts[origin] = counts.get(origin, 0) + 1
            if origin == "elsewhere":
                elsewhere.append((str(name)[:200], path[:1000]))
                self.reads.opened(path, os.O_RDONLY)  # what was opened is its compiled form, where there is one
            elif origin == "environment":
                self._note(path, imported)
        packages = self._packages(imported)
        self._write({"event": "ran", "prefix": _PREFIX, "modules": counts, "packages": packages,
                     "elsewhere": elsewhere[:MOST_ELSEWHERE], "reads": self.reads.num_files,
                     "listed": self.reads.num_folders, "last": last})  # fmt: skip

    def begin(self) -> None:
        """Report the interpreter, and the program that started it if that is not Python."""
        version = ".".join(map(str, sys.version_info[:3]))
        own = os.path.realpath(self._environ.get("GANGLINE_PREFIX") or sys.prefix) == os.path.realpath(sys.prefix)
        self._write({"event": "python", "version": version, "prefix": _PREFIX, "own": own})
        self._started(self._look.leader())

    def _report_gpus(self) -> None:
        try:
            new = gpu_names() - self._gpus
        except Exception:  # a framework that is half imported, or whose device is lost
            return
        for name in sorted(new):
            self._gpus.add(name)
            self._write({"event": "gpu", "name": name[:100]})

    def forked(self) -> None:
        """Called in the child process after a fork."""
        self._wait, self._reported = _FIRST_SECONDS, None
        self.due = time.monotonic() + self._wait

    def _started(self, program: str | None) -> None:
        if program is not None and program not in self._programs:
            self._programs.add(program)
            self._write({"event": "started", "program": program[:100]})

    def _origin(self, path: str) -> str:
        origin = self._places.origin(path)
        if origin == "elsewhere":
            origin = self._places.origin(os.path.realpath(path))
        if origin == "elsewhere" and self._places.is_compiled(path) and self._is_new(path):
            return "compiled"
        return origin

    def _is_new(self, path: str) -> bool:
        """The file was written since the gang started; at the end of a program temporary ones may be gone again."""
        try:
            return self.reads.is_new(os.stat(path))
        except FileNotFoundError:
            return True

    def _is_own(self, name: str) -> bool:
        """This machine, or a host that the gang itself uses."""
        anywhere = {"0.0.0.0", "::", ""}  # noqa: S104  # names that are looked up; none is listened on
        own = {"localhost", "::1", self._environ.get("MASTER_ADDR", "").lower(), os.uname().nodename.lower()}
        return (
            name in own | anywhere or name.startswith("127.") or name in self._environ.get("GANGLINE_STORE", "").lower()
        )

    def _note(self, path: str, imported: dict[str, str]) -> None:
        """Add the key that finds the distribution: the first part of a module's path, of namespaces the first two."""
        for folder in self._places.packages:
            if path.startswith(folder):
                parts = path[len(folder) :].split("/")
                top = parts[0].partition(".")[0]
                if len(parts) > 2 and _file_of(sys.modules.get(top)) is None:
                    top = f"{top}/{parts[1].partition('.')[0]}"
                imported.setdefault(top, path)
                return

    def _packages(self, imported: Mapping[str, str]) -> dict[str, str]:
        fresh = {top: path for top, path in imported.items() if top not in self._versions}
        if fresh:
            self._versions.update(versions(fresh, self._places.packages))
        found = [self._versions[top] for top in imported]
        return dict(sorted({each for each in found if each is not None})[:MOST_PACKAGES])


def begin(environ: Mapping[str, str]) -> ProgramAudit:
    """Audit this process from now on."""
    global _audit  # noqa: PLW0603  # one a process, as its hook is
    started = _audit = ProgramAudit(environ["GANGLINE_RAN"], dict(environ))
    sys.addaudithook(_hook_of(started))
    import atexit

    atexit.register(end)
    os.register_at_fork(after_in_child=started.forked)
    started.begin()
    return started


def end() -> None:
    """Write the last report of this process, if it is audited; call it before `os._exit`."""
    if _audit is not None:
        try:
            _audit.report(last=True)
        except Exception:  # the program ends as it would have
            return


_audit: "ProgramAudit | None" = None


def _hook_of(audit: ProgramAudit) -> Any:
    clock = time.monotonic
    opened = audit.reads.opened
    handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
        "sqlite3.connect": lambda arguments: audit.reads.connected(arguments[0]),
        "socket.getaddrinfo": lambda arguments: audit.looked_up(arguments[0]),
        "import": lambda _: audit.imports(),
        **{event: partial(audit.starts, event) for event in EVENTS},
        **{event: partial(audit.searches.looked, event) for event in SEARCHES},
        **{event: partial(audit.lists, event) for event in ("os.listdir", "os.scandir")},
    }

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        try:
            if event == "open":  # by far the most frequent of those that count
                opened(arguments[0], arguments[2])
            elif (handle := handlers.get(event)) is not None:
                handle(arguments)
            if clock() > audit.due:
                audit.report()
        except Exception as error:  # the report lacks something, which it says, and the program continues
            with suppress(Exception):
                if not sys.is_finalizing():
                    audit.unseen(f"the audit of {event} failed: {type(error).__name__}")

    return hook


def _time_of(path: "str | None") -> float:
    """Modification time of the file; without one, now."""
    try:
        return os.stat(path or "").st_mtime
    except OSError:
        return time.time()


def _file_of(module: Any) -> str | None:
    """Absolute path of the file of a module; None: it has none, or it is not a plain module."""
    if not isinstance(module, ModuleType):
        return None
    path = module.__dict__.get("__file__")  # getattr would make a lazy module import more
    return os.path.abspath(path) if isinstance(path, str) else None


def _script() -> str | None:
    """Path of the started script: at the end of a program Python has removed its `__file__`."""
    path = sys.argv[0] if sys.argv else ""
    return os.path.abspath(path) if os.path.isfile(path) else None
