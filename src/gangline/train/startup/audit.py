"""Audit of what a Python program of a rank runs: modules by origin, packages by version, files and hosts.

Standard library only and nothing of gangline: any program of a rank loads this file by its path. It appends lines of
JSON to the file that GANGLINE_RAN names, each complete, so that a process that is killed or ends by `os._exit` leaves
what it reported before; child processes write to files beside their parents':

    {"event": "python", "version", "prefix", "pid"}                        at the start
    {"event": "read", "path", "size_bytes"}                                a file that nothing declares, once each
    {"event": "host", "name"}                                              a name that was looked up, once each
    {"event": "started", "program"}                                        one whose reads are not seen, once each
    {"event": "ran", "modules", "packages", "elsewhere", "reads", "last"}  after seconds, minutes, and at the end

Files are seen by the audit hook of Python (PEP 578); what native code and other programs open is not. An audit hook
cannot be removed and must not raise: everything in it is guarded, and most events cost a few comparisons.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from .origins import FileOrigins, versions
from .programs import EVENTS, Programs

MOST_READS = 100
"""Paths that one process tells; more are counted."""
MOST_SEEN = 20_000
"""Paths that one process remembers: after so many it looks at no other."""
MOST_HOSTS = 20
MOST_PROGRAMS = 20
MOST_ELSEWHERE = 50
MOST_PACKAGES = 1000
MOST_FILE_BYTES = 1 << 20
"""Of all that the processes of a rank tell."""
_FIRST_SECONDS, _GROWTH, _MOST_SECONDS = 2.0, 6, 600.0


class ProgramAudit:
    """What this process tells."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self.due = time.monotonic() + _FIRST_SECONDS
        self._path, self._environ = path, environ
        self._places = places = FileOrigins(environ)
        self._look = Programs(environment=(*places.packages, *places.environment), declared=places.declared, told=path)
        self._programs: set[str] = set()
        self._born = _time_of(environ.get("GANGLINE_PLAN"))
        """Of the gang; what is newer in a folder for temporary files, one of its processes wrote."""
        self._wait = _FIRST_SECONDS
        self._seen: set[Any] = {path}
        self._hosts: set[str] = set()
        self._reads = 0
        self._told: tuple[int, int] | None = None
        self._origins: dict[str, str] = {}
        self._versions: dict[str, tuple[str, str] | None] = {}

    def opened(self, path: Any, flags: int) -> None:
        """A file is about to be opened."""
        if path in self._seen or len(self._seen) >= MOST_SEEN:
            return
        self._seen.add(path)
        if isinstance(path, int) or flags & os.O_ACCMODE == os.O_WRONLY or flags & (os.O_CREAT | os.O_TRUNC):
            return  # written by this program: no input of it from here on
        full = os.path.abspath(os.fsdecode(path))
        if full.startswith(self._places.declared):
            return
        if self._reads >= MOST_READS:
            self._reads += 1  # a program that reads thousands is told enough: no more is looked at
            return
        try:
            found = os.stat(full)
        except OSError:
            self._seen.discard(path)  # looked for, and not there: it may be later
            return
        real = os.path.realpath(full)
        newer = min(found.st_mtime, found.st_ctime) >= self._born  # a time can be set, a link makes the other one new
        fresh = newer and full.startswith(self._places.temporary)
        known = fresh or real.startswith(self._places.declared) or full.endswith((".pyc", ".pth"))
        if known or not stat.S_ISREG(found.st_mode):
            return
        self._reads += 1
        self._write({"event": "read", "path": full[:1000], "size_bytes": found.st_size})

    def connected(self, database: Any) -> None:
        """A file of SQLite is about to be opened, or made."""
        path = os.fsdecode(database) if isinstance(database, bytes | os.PathLike) else database
        if not isinstance(path, str) or path in ("", ":memory:"):
            return
        path = path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path
        self.opened(path, os.O_RDONLY if os.path.exists(path) else os.O_CREAT)

    def looked_up(self, host: Any) -> None:
        """The address of a host is asked for."""
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

    def tell(self, *, last: bool = False) -> None:
        """Write down what is imported by now, where that is more than was told."""
        self.due = time.monotonic() + self._wait
        self._wait = min(self._wait * _GROWTH, _MOST_SECONDS)
        mark = len(sys.modules), self._reads
        if mark == self._told and not last:
            return
        self._told = mark
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
        self._write({"event": "ran", "modules": counts, "packages": packages, "elsewhere": elsewhere,
                     "reads": self._reads, "last": last})  # fmt: skip

    def begin(self) -> None:
        """Report the interpreter, and the program that started it if that is not Python."""
        version = ".".join(map(str, sys.version_info[:3]))
        self._write({"event": "python", "version": version, "prefix": sys.prefix[:1000]})
        self._started(self._look.leader())

    def forked(self) -> None:
        """In the child."""
        self._wait, self._told = _FIRST_SECONDS, None
        self.due = time.monotonic() + self._wait

    def _started(self, program: str | None) -> None:
        if program is not None and program not in self._programs:
            self._programs.add(program)
            self._write({"event": "started", "program": program[:100]})

    def _origin(self, path: str) -> str:
        found = self._places.origin(path)
        return self._places.origin(os.path.realpath(path)) if found == "elsewhere" else found

    def _is_own(self, name: str) -> bool:
        """This machine, or a host that the gang itself has to do with."""
        anywhere = {"0.0.0.0", "::", ""}  # noqa: S104  # names that are looked up; none is listened on
        own = {"localhost", "::1", self._environ.get("MASTER_ADDR", "").lower(), os.uname().nodename.lower()}
        return (
            name in own | anywhere or name.startswith("127.") or name in self._environ.get("GANGLINE_STORE", "").lower()
        )

    def _note(self, path: str, imported: dict[str, str]) -> None:
        """By what a distribution may be found: the first part of a module's path, of namespaces the first two."""
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

    def _write(self, line: Mapping[str, Any]) -> None:
        data = json.dumps({**line, "pid": os.getpid()}).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self._path, flags, 0o644)
        try:
            if os.fstat(handle).st_size + len(data) <= MOST_FILE_BYTES:
                os.write(handle, data)
        finally:
            os.close(handle)


def begin(environ: Mapping[str, str]) -> ProgramAudit:
    """Watch this process from here on."""
    global _testimony  # noqa: PLW0603  # one a process, as its hook is
    told = _testimony = ProgramAudit(environ["GANGLINE_RAN"], dict(environ))
    sys.addaudithook(_hook_of(told))
    import atexit

    atexit.register(end)
    os.register_at_fork(after_in_child=told.forked)
    told.begin()
    return told


def end() -> None:
    """The last word of this process, where it is watched; before `os._exit` it has to be asked for."""
    if _testimony is not None:
        try:
            _testimony.tell(last=True)
        except Exception:  # a program ends as it would have
            return


_testimony: "ProgramAudit | None" = None


def _hook_of(told: ProgramAudit) -> Any:
    clock = time.monotonic

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        try:
            if event == "open":
                told.opened(arguments[0], arguments[2])
            elif event == "sqlite3.connect":
                told.connected(arguments[0])
            elif event == "socket.getaddrinfo":
                told.looked_up(arguments[0])
            elif event in EVENTS:
                told.starts(event, arguments)
            if clock() > told.due:
                told.tell()
        except Exception:  # what cannot be told stays unknown; the program goes on
            return

    return hook


def _time_of(path: "str | None") -> float:
    """When the file was written; without one, now."""
    try:
        return os.stat(path or "").st_mtime
    except OSError:
        return time.time()


def _file_of(module: Any) -> str | None:
    """As an absolute path; None: it has none, or is no plain module."""
    if not isinstance(module, ModuleType):
        return None
    path = module.__dict__.get("__file__")  # a lazy module would import more if it were asked
    return os.path.abspath(path) if isinstance(path, str) else None


def _script() -> str | None:
    """What was started: at the end of a program Python has taken `__file__` from it again."""
    path = sys.argv[0] if sys.argv else ""
    return os.path.abspath(path) if os.path.isfile(path) else None
