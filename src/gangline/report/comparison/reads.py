"""Files that two runs read and that no key declares: which of them differ, and which cannot be compared. Pure."""

from collections.abc import Iterator, Sequence

from gangline.report.text import short
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.spec.record import Record
from gangline.units import format_bytes

_Pair = tuple[UndeclaredRead | None, UndeclaredRead | None]


def read_change(base: Record, this: Record) -> tuple[str, str, str] | None:
    """Name, side of `base` and side of `this` of files that differ, or that one run alone read; None: none is known."""
    pairs = [pair for pair in _pairs(base.ran, this.ran) if None in pair or _is_same(pair) is False]
    if not pairs:
        return None
    first = min(pairs, key=lambda pair: None in pair)  # of one that both read the content is known to differ
    path = next(each.path for each in first if each is not None)
    count = f"{len(pairs)} undeclared files, such as" if len(pairs) > 1 else f"undeclared {_kind(path)}"
    return f"{count} {path}", content_words(first[0]), content_words(first[1])


def uncompared_reads(base: Record, this: Record) -> str:
    """Sentence on files that both runs read without a record that tells whether they differ; empty: there is none."""
    pairs = _pairs(base.ran, this.ran)
    unknown = [pair[0].path for pair in pairs if pair[0] and pair[0].ctime_ns and _is_same(pair) is None]
    said = [f"{unknown[0]}{_more(unknown)}"] if unknown else []
    said += ["files that are not listed, because ranks read so many"] if not are_listed(base.ran, this.ran) else []
    return f"read {' and '.join(said)}" if said else ""


def _pairs(base: RuntimeReport | None, this: RuntimeReport | None) -> Iterator[_Pair]:
    """Reads of both by path; those of one alone only if the list of the other one is whole."""
    if base is None or this is None:
        return
    before, after = ({each.path: each for each in (*ran.reads, *ran.listed)} for ran in (base, this))
    for path in sorted(before.keys() | after.keys()):
        lists = [ran for ran, found in ((base, before), (this, after)) if path not in found]
        if all(are_listed(ran) for ran in lists):
            yield before.get(path), after.get(path)


def are_listed(*reports: RuntimeReport | None) -> bool:
    """Whether the lists of reads are whole, of those that there are."""
    found = [ran for ran in reports if ran is not None]
    return all(ran.num_reads <= len(ran.reads) and ran.num_listed <= len(ran.listed) for ran in found)


def _is_same(pair: _Pair) -> bool | None:
    before, after = pair
    if before is None or after is None:
        return False
    return None if before.changed or after.changed else before.is_same(after)


def _kind(path: str) -> str:
    return "folder" if path.endswith("/") else "file"


def content_words(read: UndeclaredRead | None) -> str:
    """`2 B, 4355a46b`; `48 names, 1b2c3d4e` of a folder."""
    if read is None:
        return "not read"
    names = f"{read.size_bytes} name{'' if read.size_bytes == 1 else 's'}"
    size = names if read.path.endswith("/") else format_bytes(read.size_bytes)
    return f"{size}, {short(read.sha256)}" if read.sha256 else size


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""
