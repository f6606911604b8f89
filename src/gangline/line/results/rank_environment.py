"""Environment of a gang's ranks as they report it: modules, packages, files read; read within bounds.

The processes of the model code write this report (`train.startup.audit`), so its author can forge it. It finds errors;
what the driver knows of commit, code layer, data and image does not depend on it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from gangline.errors import ConfigError, IntegrityError
from gangline.line.gangs.attempts import FinishedGang
from gangline.line.record.context import RunContext
from gangline.line.request.trust import FOLDER
from gangline.line.results.undeclared_reads import MOST_LISTED, MOST_READS, add_read, left_first, with_changed_files
from gangline.sanitize import clean
from gangline.spec.gang.status import read_event
from gangline.spec.program_files import LoadedModule, RuntimeReport, UndeclaredRead
from gangline.storage.objects.growing_file import split_lines
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all
from gangline.units import parse_time

MOST_FILES = 64
MOST_BYTES = 1 << 20
"""Most bytes that are read of each file."""
MOST_PACKAGES, MOST_ELSEWHERE, MOST_HOSTS = 600, 50, 20
MOST_PROGRAMS, MOST_GPUS, MOST_INTERPRETERS, MOST_FOREIGN, MOST_UNSEEN, MOST_SEARCHES = 20, 8, 20, 5, 5, 20
_LONGEST_PATH, _LONGEST_NAME, _SHA256 = 400, 100, 64
_COUNT = 1 << 63
_NAMES = {
    "host": ("name", MOST_HOSTS, _LONGEST_NAME), "started": ("program", MOST_PROGRAMS, _LONGEST_NAME),
    "unseen": ("why", MOST_UNSEEN, _LONGEST_NAME), "gpu": ("name", MOST_GPUS, _LONGEST_NAME),
    "search": ("pattern", MOST_SEARCHES, _LONGEST_PATH),
}  # fmt: skip
"""Key, most names and most characters of the events that are names alone."""
_FILE = re.compile(r".*/ran-(\d{1,7})\.jsonl")
_ORIGINS = ("code", "environment", "standard", "gangline", "compiled", "elsewhere")


def read_rank_environment(
    store: ObjectStore, prefix: str, *, homes: Path | None = None, since: float = 0.0
) -> RuntimeReport | None:
    """The report of the ranks below `prefix`; None if no rank was a Python that reads PYTHONPATH.

    Args:
        store: Of the run.
        prefix: Of what the gang wrote.
        homes: Folder of homes that are kept on the machine of the ranks; None: they had none.
        since: Creation of the run; what did not change in a kept home since then, an earlier run left there.

    Raises:
        IntegrityError: A file is too large.
    """
    files: dict[int, str] = {}
    for entry in list_all(store, f"{prefix}/ranks/ran-"):
        if match := _FILE.fullmatch(entry.key):
            files[int(match[1])] = entry.key
        if len(files) >= MOST_FILES:
            break
    merger = _ReportMerger(homes, since)
    for rank, key in sorted(files.items()):
        if (blob := get_bounded(store, key, most_bytes=MOST_BYTES)) is not None:
            for line in split_lines([blob.data]):
                merger.add(rank, read_event(line) or {})
    return merger.report() if merger.ranks else None


def gang_environment(ctx: RunContext, finished: FinishedGang, stage: str) -> RuntimeReport | None:
    """The report of a gang that has ended; None if it is invalid, which does not fail the run.

    Files that ranks of this machine read are looked at again; paths that a fork names are not opened.
    """
    homes = None if ctx.record.run.launcher.has_pods else ctx.home.resolve() / FOLDER
    since = created.timestamp() if (created := parse_time(ctx.record.run.created)) else 0.0
    try:
        ran = read_rank_environment(ctx.store, finished.plan.output_prefix, homes=homes, since=since)
    except IntegrityError as error:
        ctx.record_event(stage, "events", f"not read: {error}")
        return None
    is_looked_at = ctx.record.run.launcher.is_here and ctx.record.commit.trust == "own"
    return with_changed_files(ran) if ran is not None and is_looked_at else ran


def work_tree_error(ran: RuntimeReport, root: Path, *, home: Path) -> ConfigError | None:
    """The error of a gang that loaded modules below `root`, the work tree of the driver; None if it did not.

    `home` is gangline's folder in it, where models keep downloads.
    """
    modules = [module for module in ran.elsewhere if _is_in(module.file, root) and not _is_in(module.file, home)]
    if not modules:
        return None
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return ConfigError(
        f"wanted the code of the commit, found module {modules[0].name} of {modules[0].file}{more}, from the work tree;"
        " commit it where project.path finds it, or uninstall the package that is installed editable from there"
    )


@dataclass(slots=True)
class _Interpreter:
    version: str = ""
    is_own: bool = True
    """It belongs to the gang's environment."""
    packages: dict[str, str] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    """Modules of the process that loaded most."""

    @property
    def importance(self) -> tuple[bool, int]:
        """Sort key: what starts the program, such as `conda run`, loads much, but nothing of the commit."""
        return "code" in self.modules, sum(self.modules.values())


class _ReportMerger:
    """Merges the untrusted event lines of all ranks into one report."""

    def __init__(self, homes: Path | None, since: float) -> None:
        self._homes, self._since = homes, since
        self.ranks: dict[int, None] = {}
        self._interpreters: dict[str, _Interpreter] = {}
        """Interpreters by prefix."""
        self._elsewhere: dict[str, str] = {}
        self._reads: dict[str, UndeclaredRead] = {}
        self._listed: dict[str, UndeclaredRead] = {}
        self._num_reads = self._num_listed = 0
        self._names: dict[str, dict[str, None]] = {}
        """Names in the order of their events, by the kind of event."""
        self._is_whole = False

    def add(self, rank: int, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "python":
                self.ranks[rank] = None
                if (interpreter := self._interpreter(event)) is not None:
                    interpreter.version = interpreter.version or _text(event.get("version"), 40)
                    interpreter.is_own = interpreter.is_own and event.get("own") is not False
            case "read" | "listed" as kind if (read := _read(event)).path:
                self._add_read(kind, read)
            case str(kind) if kind in _NAMES:
                key, most, limit = _NAMES[kind]
                names = self._names.setdefault(kind, {})
                if len(names) < most and (name := _text(event.get(key), limit)):
                    names[name] = None
            case "ran":
                self._add_summary(event)

    def report(self) -> RuntimeReport:
        others = [each for each in self._interpreters.items() if not each[1].is_own and "code" in each[1].modules]
        prefix, main = max(
            self._interpreters.items(), key=lambda each: each[1].importance, default=("", _Interpreter())
        )
        return RuntimeReport(
            python=main.version,
            prefix=prefix,
            foreign=tuple(f"Python {interpreter.version} of {place}" for place, interpreter in others[:MOST_FOREIGN]),
            packages=dict(sorted(main.packages.items())),
            modules=main.modules,
            elsewhere=tuple(LoadedModule(name=name, file=file) for name, file in self._elsewhere.items()),
            reads=left_first(self._reads.values())[:MOST_READS],
            num_reads=max(self._num_reads, len(self._reads)),
            listed=tuple(self._listed.values()),
            num_listed=max(self._num_listed, len(self._listed)),
            hosts=tuple(self._names.get("host", ())),
            programs=tuple(self._names.get("started", ())),
            unseen=tuple(self._names.get("unseen", ())),
            searches=tuple(self._names.get("search", ())),
            gpus=tuple(sorted(self._names.get("gpu", ()))),
            ranks=tuple(self.ranks),
            is_whole=self._is_whole,
        )

    def _add_read(self, kind: Literal["read", "listed"], read: UndeclaredRead) -> None:
        """One that has no room is counted: the list of several processes is not whole then."""
        if kind == "read" and self._is_left(read):
            add_read(self._reads, replace(read, left=True), most=2 * MOST_READS)
        elif kind == "read" and not add_read(self._reads, read, most=MOST_READS):
            self._num_reads = max(self._num_reads, MOST_READS + 1)
        elif kind == "listed" and not add_read(self._listed, read, most=MOST_LISTED):
            self._num_listed = max(self._num_listed, MOST_LISTED + 1)

    def _is_left(self, read: UndeclaredRead) -> bool:
        is_kept = self._homes is not None and _is_in(read.path, self._homes)
        return is_kept and read.ctime_ns < self._since * 1e9

    def _add_summary(self, event: Mapping[str, Any]) -> None:
        interpreter = self._interpreter(event) or _Interpreter()
        for name, version in _pairs(event.get("packages")):
            if len(interpreter.packages) < MOST_PACKAGES:
                interpreter.packages.setdefault(name, version)
        for name, file in _pairs(event.get("elsewhere")):
            if len(self._elsewhere) < MOST_ELSEWHERE:
                self._elsewhere.setdefault(name, file)
        counts = event.get("modules")
        modules = {each: _count(counts.get(each)) for each in _ORIGINS} if isinstance(counts, dict) else {}
        if sum(modules.values()) > sum(interpreter.modules.values()):
            interpreter.modules = {name: number for name, number in modules.items() if number}
        self._num_reads = max(self._num_reads, _count(event.get("reads")))
        self._num_listed = max(self._num_listed, _count(event.get("listed")))
        self._is_whole = self._is_whole or event.get("last") is True

    def _interpreter(self, event: Mapping[str, Any]) -> _Interpreter | None:
        """Interpreter of the event, the first if it names none; None: there are too many."""
        prefix = _text(event.get("prefix"), _LONGEST_PATH) or next(iter(self._interpreters), "")
        if len(self._interpreters) < MOST_INTERPRETERS:
            return self._interpreters.setdefault(prefix, _Interpreter())
        return self._interpreters.get(prefix)


def _read(event: Mapping[str, Any]) -> UndeclaredRead:
    sha256 = _text(event.get("sha256"), _SHA256)
    return UndeclaredRead(
        path=_text(event.get("path"), _LONGEST_PATH),
        size_bytes=_count(event.get("size_bytes")),
        mtime_ns=_count(event.get("mtime_ns")),
        ctime_ns=_count(event.get("ctime_ns")),
        sha256=sha256 if len(sha256) == _SHA256 else "",
    )


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    """Pairs of texts, from a table or a list of pairs."""
    for each in value.items() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(each, (list, tuple)) and len(each) == 2:
            name, text = _text(each[0], _LONGEST_NAME), _text(each[1], _LONGEST_PATH)
            if name and text:
                yield name, text


def _text(value: Any, limit: int) -> str:
    return clean(value, limit=limit) if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT else 0


def _is_in(file: str, folder: Path) -> bool:
    return PurePosixPath(file).is_relative_to(folder)
