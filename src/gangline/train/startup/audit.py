"""Audit of what a Python program of a rank runs: modules by origin, packages by version, files and hosts.

Standard library only and nothing of gangline: any program of a rank loads this file by its path. It appends lines of
JSON to the file that GANGLINE_RAN names. Each line is complete, so that a process that is killed or ends by `os._exit`
keeps its earlier reports. Child processes append to the same file:

    {"event": "python", "version", "prefix", "own", "pid"}                 at the start; own: that of the gang
    {"event": "read", "path", "size_bytes", "changed"}                     a file that nothing declares, once each
    {"event": "host", "name"}                                              a name that was looked up, once each
    {"event": "started", "program"}                                        one whose reads are not seen, once each
    {"event": "gpu", "name"}                                               a kind that it uses, once each
    {"event": "unseen", "why"}                                             reads were not examined, once each
    {"event": "ran", "prefix", "modules", "packages", "elsewhere", "reads", "last"}  after seconds, minutes, at the end

Files are seen by the audit hook of Python (PEP 578); what native code and other programs open is not, but for two
calls of torch. An audit hook cannot be removed and must not raise: everything in it is guarded, and most events cost a
few comparisons.
"""

import os
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from .devices import gpu_names
from .origins import FileOrigins, versions
from .programs import EVENTS, Programs
from .report_file import ReportFile
from .torch_reads import TorchReads

MOST_READS = 100
"""Paths that one process reports; more are only counted."""
MOST_LEFT = 20
"""Files of earlier runs that one process reports of a kept home."""
MOST_SEEN = 20_000
"""Paths outside what is declared that one process examines."""
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
        self._born = _time_of(environ.get("GANGLINE_PLAN"))
        """Start of the gang: newer files in a folder for temporary files were written by its processes."""
        self._wait = _FIRST_SECONDS
        self._seen: set[Any] = {path}
        self._unseen: set[str] = set()
        """Why reads were not examined."""
        self._hosts: set[str] = set()
        self._reads = self._num_left = 0
        self._reported: tuple[int, int] | None = None
        self._origins: dict[str, str] = {}
        self._versions: dict[str, tuple[str, str] | None] = {}
        self._torch_reads = TorchReads(self._opened_natively)

    def opened(self, path: Any, flags: int) -> None:
        """A file is about to be opened."""
        full = _absolute(path)
        if full is None or full in self._seen or full.startswith(self._places.declared):
            return
        has_room = len(self._seen) < MOST_SEEN or self._may_be_left(full)
        if has_room:
            self._seen.add(full)
        if flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_TRUNC or (flags & os.O_CREAT and not _holds_bytes(full)):
            return  # written by this program, so not an input
        if has_room:
            self._examine(full)
        else:
            self.unseen(f"more than {MOST_SEEN} files were opened outside of what is declared")

    def _examine(self, full: str) -> None:
        may_be_left = self._may_be_left(full)
        if self._reads >= MOST_READS and not may_be_left:
            self._reads += 1  # counted, but not examined
            return
        try:
            found = os.stat(full)
        except (OSError, ValueError):
            self._seen.discard(full)  # the file may exist later
            return
        real = os.path.realpath(full)
        fresh = full.startswith(self._places.temporary) and self._is_new(found)
        is_left = may_be_left and not self._is_new(found)
        known = fresh or real.startswith(self._places.declared) or (full.endswith((".pyc", ".pth")) and not is_left)
        if known or not stat.S_ISREG(found.st_mode):
            return
        self._reads += 1
        self._num_left += is_left
        if is_left or self._reads <= MOST_READS:
            changed = round(found.st_ctime, 3)
            self._write({"event": "read", "path": full[:1000], "size_bytes": found.st_size, "changed": changed})

    def _may_be_left(self, full: str) -> bool:
        """An earlier run may have left it in a home that is kept: such files are looked for beyond the other limits."""
        return full.startswith(self._places.kept_home) and self._num_left < MOST_LEFT

    def unseen(self, why: str) -> None:
        """Reads may not have been examined."""
        if why not in self._unseen:
            self._unseen.add(why)  # first: writing it is an event, too
            self._write({"event": "unseen", "why": why})

    def imports(self) -> None:
        """A module is about to be imported."""
        self._torch_reads.imports()

    def _opened_natively(self, path: Any) -> None:
        """A file is about to be opened, or created where there is none."""
        self.opened(path, os.O_RDONLY if os.path.exists(path) else os.O_CREAT)

    def connected(self, database: Any) -> None:
        """A file of SQLite is about to be opened or created."""
        path = os.fsdecode(database) if isinstance(database, bytes | os.PathLike) else database
        if not isinstance(path, str) or path in ("", ":memory:"):
            return
        path = path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path
        self._opened_natively(path)

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

    def report(self, *, last: bool = False) -> None:
        """Report the imported modules, if there are new ones since the last report."""
        self.due = time.monotonic() + self._wait
        self._wait = min(self._wait * _GROWTH, _MOST_SECONDS)
        self._report_gpus()
        mark = len(sys.modules), self._reads
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
            if origin == "elsewhere" and len(elsewhere) < MOST_ELSEWHERE:
                elsewhere.append((str(name)[:200], path[:1000]))
            elif origin == "environment":
                self._note(path, imported)
        packages = self._packages(imported)
        self._write({"event": "ran", "prefix": _PREFIX, "modules": counts, "packages": packages,
                     "elsewhere": elsewhere, "reads": self._reads, "last": last})  # fmt: skip

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
        found = self._places.origin(path)
        if found == "elsewhere":
            found = self._places.origin(os.path.realpath(path))
        if found == "elsewhere" and self._places.is_compiled(path) and self._is_new(os.stat(path)):
            return "compiled"
        return found

    def _is_new(self, file: os.stat_result) -> bool:
        """Written since the gang started: a time can be set, a link makes the other one new."""
        return min(file.st_mtime, file.st_ctime) >= self._born

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

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        try:
            if event == "open":
                audit.opened(arguments[0], arguments[2])
            elif event == "import":
                audit.imports()
            elif event == "sqlite3.connect":
                audit.connected(arguments[0])
            elif event == "socket.getaddrinfo":
                audit.looked_up(arguments[0])
            elif event in EVENTS:
                audit.starts(event, arguments)
            if clock() > audit.due:
                audit.report()
        except Exception as error:  # the report lacks something, which it says, and the program continues
            with suppress(Exception):
                if not sys.is_finalizing():
                    audit.unseen(f"the audit of {event} failed: {type(error).__name__}")

    return hook


def _absolute(path: Any) -> "str | None":
    """None: a descriptor, or nothing that can be opened."""
    if isinstance(path, int):
        return None
    try:
        name = os.fsdecode(path)
    except TypeError:
        return None
    return os.path.abspath(name)


def _holds_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except (OSError, ValueError):
        return False


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
