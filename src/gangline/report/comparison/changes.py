"""Differences between two runs before training: line keys, code, files, packages, data, plan.

Files that both read and that no key declares differ, too, as far as they can be compared. Pure.
"""

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from gangline.report.comparison.types import Change, ComparisonContext, FileChange, Kind
from gangline.report.facts import pinned_rows
from gangline.report.inputs import imported_versions
from gangline.report.text import short
from gangline.spec.config.load import LATER_DEFAULTS
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.spec.record import Record
from gangline.spec.replica_shares import shares_words
from gangline.units import format_bytes

_GATES, _COMMAND = "gate.quality", "project.command"
_UNSEEN = ("modules", "data", "network")
"""Items of the gate `reproducible` that no digest or version in two records compares."""

_Pair = tuple[UndeclaredRead | None, UndeclaredRead | None]


def changes_between(base: Record, this: Record, beyond: ComparisonContext) -> Iterator[Change]:
    """Line, packages, digests, seeds, plan, devices, in this order."""
    for row in _line_differences(*({**LATER_DEFAULTS, **record.inputs.values} for record in (base, this))):
        yield _change("line", *row)
    for row in _differences(*_versions(base, this, beyond)):
        yield _change("package", *row)
    yield from _digest_changes(base, this)
    if base.inputs.seeds != this.inputs.seeds:
        yield _change("seed", "seeds", list(base.inputs.seeds), list(this.inputs.seeds))
    if base.plan and this.plan and base.plan.name != this.plan.name:
        yield _change("plan", "name", base.plan.name, this.plan.name)
    if base.plan and this.plan and base.plan.shares != this.plan.shares:
        shares = [shares_words(plan.shares) or "equal" for plan in (base.plan, this.plan)]
        yield _change("plan", "samples by replica", *shares)
    before, after = _devices(base, this)
    if before != after:
        yield _change("device", "kind", before, after)
    if reads := read_change(base, this):
        yield _change("read", *reads)


def _digest_changes(base: Record, this: Record) -> Iterator[Change]:
    """Code, environment and data by digest, and data sets by version."""
    digests: tuple[tuple[Kind, str, str, str], ...] = (
        ("code", _code_words(base, this), base.inputs.code, this.inputs.code),
        ("environment", "digest", base.inputs.environment, this.inputs.environment),
        ("data", "digest", base.inputs.data, this.inputs.data),
    )
    for kind, name, before, after in digests:
        if before != after:
            yield _change(kind, name, short(before), short(after))
    if base.inputs.datasets != this.inputs.datasets:
        yield _change("data", "sets", *(", ".join(record.inputs.datasets) or "none" for record in (base, this)))


def unpinned_between(base: Record, this: Record) -> tuple[str, ...]:
    """What may differ between two runs without a record of it: `data: none declared; reads of cat are not visible`."""
    rows = [*pinned_rows(this), *pinned_rows(base)]
    found = {row.name: row.uncompared for row in reversed(rows) if row.name in _UNSEEN and row.uncompared}
    if unknown := uncompared_reads(base, this):
        found["data"] = "; ".join(filter(None, [unknown, found.get("data", "")]))
    return tuple(f"{name}: {found[name]}" for name in _UNSEEN if name in found)


def files_between(base: Record, this: Record, beyond: ComparisonContext) -> tuple[FileChange, ...]:
    """Changed files: with counts of lines if the repository is at hand, else the paths that the record names."""
    if beyond.files or not _is_base(base, this):
        return beyond.files
    return tuple(FileChange(path=path) for path in this.commit.changed)


def read_change(base: Record, this: Record) -> tuple[str, str, str] | None:
    """Name, side of `base` and side of `this` of files that differ, or that one run alone read; None: none is known."""
    pairs = [pair for pair in _pairs(base.ran, this.ran) if None in pair or _is_same(pair) is False]
    if not pairs:
        return None
    first = min(pairs, key=lambda pair: None in pair)  # of one that both read the content is known to differ
    path = next(read.path for read in first if read is not None)
    kind = "folder" if path.endswith("/") else "file"
    count = f"{len(pairs)} undeclared files, such as" if len(pairs) > 1 else f"undeclared {kind}"
    return f"{count} {path}", content_words(first[0]), content_words(first[1])


def uncompared_reads(base: Record, this: Record) -> str:
    """Sentence on files that both runs read without a record that tells whether they differ; empty: there is none."""
    pairs = _pairs(base.ran, this.ran)
    unknown = [pair[0].path for pair in pairs if pair[0] and pair[0].ctime_ns and _is_same(pair) is None]
    said = [f"{unknown[0]}{_more(unknown)}"] if unknown else []
    said += ["files that are not listed, because ranks read so many"] if not are_listed(base.ran, this.ran) else []
    return f"read {' and '.join(said)}" if said else ""


def are_listed(*reports: RuntimeReport | None) -> bool:
    """Whether the lists of reads are whole, of those that there are."""
    runtime_reports = [ran for ran in reports if ran is not None]
    return all(ran.num_reads <= len(ran.reads) and ran.num_listed <= len(ran.listed) for ran in runtime_reports)


def content_words(read: UndeclaredRead | None) -> str:
    """`2 B, 4355a46b`; `48 names, 1b2c3d4e` of a folder."""
    if read is None:
        return "not read"
    names = f"{read.size_bytes} name{'' if read.size_bytes == 1 else 's'}"
    size = names if read.path.endswith("/") else format_bytes(read.size_bytes)
    return f"{size}, {short(read.sha256)}" if read.sha256 else size


def _line_differences(base: dict[str, Any], this: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Keys that differ; of a command its words, of quality gates each by its metric, which a whole list hides."""
    commands = _word_differences(base.get(_COMMAND), this.get(_COMMAND))
    base, this = ({key: value for key, value in values.items() if key != _COMMAND} for values in (base, this))
    before, after = _gates(base), _gates(this)
    if before is None or after is None:
        return commands + _differences(base, this)
    opened = ((each, before[each], after[each]) for each in before.keys() & after.keys())
    keys = [(f"{_GATES} {each}.{row[0]}", *row[1:]) for each, *two in opened for row in _differences(*two)]
    alone = before.keys() ^ after.keys()
    one = [(f"{_GATES} {each}", _gate_words(before.get(each)), _gate_words(after.get(each))) for each in alone]
    others = ({name: value for name, value in values.items() if name != _GATES} for values in (base, this))
    return sorted([*commands, *_differences(*others), *keys, *one], key=lambda row: row[0])


def _word_differences(base: Any, this: Any) -> list[tuple[str, Any, Any]]:
    """Words of a command that differ, each by the option before it: the whole of it is cut off before what differs."""
    if not (isinstance(base, list) and isinstance(this, list)):
        return [] if base == this else [(_COMMAND, base, this)]
    before, after = (list(map(str, words)) for words in (base, this))
    rows = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        option = before[start - 1] if tag == "replace" and start and before[start - 1].startswith("-") else ""
        if tag != "equal":
            name = f"{_COMMAND} {option}".rstrip()
            rows.append((name, shlex.join(before[start:end]) or "-", shlex.join(after[new_start:new_end]) or "-"))
    return rows


def _gates(values: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Quality gates by metric; None if a record has them in another form, or two of one metric."""
    value = values.get(_GATES, [])
    if not isinstance(value, list):
        return None
    named = {str(each.get("metric")): each for each in value if isinstance(each, dict)}
    return named if len(named) == len(value) else None


def _gate_words(gate: Mapping[str, Any] | None) -> str:
    set_keys = {key: value for key, value in (gate or {}).items() if key != "metric" and value is not None}
    return ", ".join(f"{key} {_said(value)}" for key, value in set_keys.items()) or ("-" if gate is None else "set")


def _versions(base: Record, this: Record, beyond: ComparisonContext) -> tuple[dict[str, str], dict[str, str]]:
    """Packages by version: those that were imported where both runs reported them, else those of their bills of
    materials or locks, and for the rest those of who created the runs.

    A package that one run alone imported is one that the other has, too, where its lock says so.
    """
    before, after = (imported_versions(record) for record in (base, this))
    if before and after:
        names = before.keys() | after.keys()
        return _with_others(before, names, beyond.base_packages), _with_others(after, names, beyond.this_packages)
    return {**base.inputs.versions, **beyond.base_packages}, {**this.inputs.versions, **beyond.this_packages}


def _with_others(imported: Mapping[str, str], names: Collection[str], locked: Mapping[str, str]) -> dict[str, str]:
    return {name: imported.get(name) or locked.get(name) or "not imported" for name in names}


def _devices(base: Record, this: Record) -> tuple[str, str]:
    """GPUs that ranks found where both runs say it, else those of both plans."""
    if base.ran and this.ran and base.ran.gpus and this.ran.gpus:
        return ", ".join(base.ran.gpus), ", ".join(this.ran.gpus)
    if base.plan is None or this.plan is None:
        return "", ""
    if base.plan.device == this.plan.device and not (base.plan.device_name and this.plan.device_name):
        return "", ""
    return base.plan.device_name or base.plan.device, this.plan.device_name or this.plan.device


def _change(kind: Kind, name: str, base: Any, this: Any) -> Change:
    return Change(kind=kind, name=name, base=_said(base), this=_said(this))


def _said(value: Any) -> str:
    """Value as a line or a lock would write it, not as Python does."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _differences(base: Mapping[str, Any], this: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = sorted(base.keys() | this.keys())
    return [(n, base.get(n, "-"), this.get(n, "-")) for n in names if base.get(n) != this.get(n)]


def _code_words(base: Record, this: Record) -> str:
    if _is_base(base, this) and this.commit.changed:
        shown = ", ".join(this.commit.changed[:5])
        rest = len(this.commit.changed) - 5
        return shown + (f" and {rest} more" if rest > 0 else "")
    return "digest"


def _is_base(base: Record, this: Record) -> bool:
    return this.commit.base is not None and this.commit.base.run == base.run.id


def _pairs(base: RuntimeReport | None, this: RuntimeReport | None) -> Iterator[_Pair]:
    """Reads of both by path; those of one alone only if the list of the other one is whole."""
    if base is None or this is None:
        return
    before, after = ({read.path: read for read in (*ran.reads, *ran.listed)} for ran in (base, this))
    for path in sorted(before.keys() | after.keys()):
        lists = [ran for ran, found in ((base, before), (this, after)) if path not in found]
        if all(are_listed(ran) for ran in lists):
            yield before.get(path), after.get(path)


def _is_same(pair: _Pair) -> bool | None:
    before, after = pair
    if before is None or after is None:
        return False
    return None if before.changed or after.changed else before.is_same(after)


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""
