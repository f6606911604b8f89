"""Files that ranks read and that the line does not declare: what is said of them, and whether they are still the same.

A training is taken over by its key, which holds what is declared. What its ranks read besides has to be the same here
and now: a file that is another one, or that this machine cannot look at, is a reason to train again.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gangline.sanitize import clean
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.train.startup.contents import contents_of

MOST_READS, MOST_LISTED = 100, 50
"""Files and folders of a report."""
NATIVE = frozenset({
    "av", "catboost", "cudf", "decord", "deeplake", "duckdb", "faiss", "h5py", "imageio-ffmpeg", "lightgbm", "lmdb",
    "netcdf4", "nvidia-dali", "onnxruntime", "opencv-python", "polars", "pyarrow", "rasterio", "safetensors",
    "sentencepiece", "soundfile", "tables", "tensorflow", "tensorstore", "tf", "tokenizers", "torchaudio", "torchcodec",
    "xgboost", "zarr",
})  # fmt: skip
"""Packages that open files in native code, where no audit hook of Python sees it."""
NO_REPORT = "no rank reported what it ran: none was a Python that reads PYTHONPATH (python -I, -E and -S do not)"
_BUILD = re.compile(r"-(cpu|gpu|cu(da)?\d+|rocm|directml|openvino|qnn|macos|intel|headless|contrib|lts|nightly)(?=-|$)")
"""Parts of the names of other builds of a package: `xgboost-cpu`, `opencv-contrib-python-headless`."""
_KEPT_HOMES = ".gangline/home"
"""Folder of homes of ranks of own commits on this machine, which stay with the downloads in them."""
_SHOWN = 3
TRACKED = "tracked"
"""Output of the build stage: what DVC or Git LFS track for the commit, as a sentence."""
_KERNEL = ("/proc/", "/sys/", "/dev/")


def undeclared_reads_text(ran: RuntimeReport, root: Path | None = None) -> str:
    """`read 3 files that the line does not declare: labels.txt, ...`; empty if no such read was seen."""
    if not ran.num_reads:
        return ""
    shown = [clean(_short(read.path, root), limit=120) for read in ran.reads[:_SHOWN]]
    more = ", ..." if ran.num_reads > len(shown) else ""
    changed = "".join(f"; {named(found)} changed meanwhile" for found in [_changed(ran)] if found)
    cached = any("/.cache/huggingface/" in read.path for read in ran.reads)
    hub = "; this includes downloads of a hub: pin their revision by its full commit" if cached else ""
    left = f"; this includes what an earlier run left in {_KEPT_HOMES}" if any(read.left for read in ran.reads) else ""
    return (
        f"read {_files(ran)} that the line does not declare: {', '.join(shown)}{more}{changed}; data.text, data.shards"
        f" or project.include declare files of the repository or the store{hub}{left}"
    )


def invisible_reads(record: Record) -> Iterator[str]:
    """Sentences on reads of a run that no rank could report."""
    ran = record.ran
    if ran is None:
        yield f"other reads are not known: {NO_REPORT}"
        return
    native = [] if has_declared_data(record) else sorted(filter(_is_native, ran.packages))
    if names := [*ran.programs, *native]:
        yield f"reads of {', '.join(names[:_SHOWN])}{_more(names)} are not visible"
    if ran.unseen:
        yield f"some reads were not examined: {'; '.join(ran.unseen)}"


def has_declared_data(record: Record) -> bool:
    """Whether the line declares data by `data.text`, `data.shards` or `data.mix`, or its commit by DVC or Git LFS."""
    is_tracked = TRACKED in stage(record, "build").outputs
    return is_tracked or any(record.inputs.values.get(f"data.{name}") for name in ("text", "shards", "mix"))


def add_read(reads: dict[str, UndeclaredRead], found: UndeclaredRead, *, most: int) -> bool:
    """Add a read to those of other processes, by path; one that found other content there is noted.

    False: there is no room for it.
    """
    if len(reads) >= most and found.path not in reads:
        return False
    read = reads.setdefault(found.path, found)
    same = read.is_same(found)
    changed = read.changed or found.changed or same is False or (same is None and read.ctime_ns > 0)
    reads[found.path] = replace(read, changed=changed, left=read.left or found.left)
    return True


def with_reads_of(ran: RuntimeReport | None, other: RuntimeReport | None) -> RuntimeReport | None:
    """`ran` with what the ranks of another gang of its run read, too; what earlier runs left is not cut off."""
    if ran is None or other is None:
        return ran or other
    reads: dict[str, UndeclaredRead] = {}
    listed: dict[str, UndeclaredRead] = {}
    lost = sum([not add_read(reads, read, most=MOST_READS) for read in left_first((*ran.reads, *other.reads))])
    lost_folders = sum([not add_read(listed, read, most=MOST_LISTED) for read in (*ran.listed, *other.listed)])
    return replace(
        ran,
        reads=tuple(reads.values()), num_reads=max(ran.num_reads, other.num_reads, len(reads) + lost),
        listed=tuple(listed.values()), num_listed=max(ran.num_listed, other.num_listed, len(listed) + lost_folders),
        programs=tuple(dict.fromkeys((*ran.programs, *other.programs))),
        unseen=tuple(dict.fromkeys((*ran.unseen, *other.unseen))),
    )  # fmt: skip


def left_first(reads: Iterable[UndeclaredRead]) -> tuple[UndeclaredRead, ...]:
    """Reads with those before the others that an earlier run left, as a list is cut at its end."""
    return tuple(sorted(reads, key=lambda read: not read.left))


def with_changed_files(ran: RuntimeReport) -> RuntimeReport:
    """The report of ranks that have just ended on this machine; files that are others now changed meanwhile."""
    reads, listed = (
        tuple(replace(read, changed=read.changed or not is_same_now(read)) for read in group)
        for group in (ran.reads, ran.listed)
    )
    return replace(ran, reads=reads, listed=listed)


def is_same_now(read: UndeclaredRead) -> bool:
    """Whether this machine has the file or folder at its path as it was read.

    Ranks name the path: files of the kernel, which no rank reports, are not opened.
    """
    if read.path.startswith(_KERNEL):
        return False
    times = contents_of(read.path, most_bytes=0)
    if times is None:
        return False
    if (times.mtime_ns, times.ctime_ns) == (read.mtime_ns, read.ctime_ns):
        return True
    found = contents_of(read.path) if read.sha256 else None
    return found is not None and found.sha256 == read.sha256


def changed_since(record: Record) -> tuple[str, ...]:
    """Paths that are not the same here and now, as far as the record says what they held; none of a fork's run."""
    return _changed_since(record.ran) if record.ran is not None and record.commit.trust == "own" else ()


def _changed_since(ran: RuntimeReport) -> tuple[str, ...]:
    return tuple(read.path for read in (*ran.reads, *ran.listed) if read.ctime_ns and not is_same_now(read))


def obstacle(ran: RuntimeReport | None, *, home: Path | None = None) -> str:
    """Why the result of these ranks is not taken over; empty: all that they are known to have read is the same now.

    Args:
        ran: Report of the ranks; what they did not report is no reason.
        home: Home of the run that would take it, None: an empty one. What an earlier run left in another one, it lacks.
    """
    if ran is None:
        return ""
    if ran.num_reads > len(ran.reads) or ran.num_listed > len(ran.listed) or ran.unseen:
        why = f", and {ran.unseen[0]}" if ran.unseen else ": too many to be compared"
        return f"it read {_files_and_folders(ran)} that the line does not declare{why}"
    if changed := _changed(ran):
        return f"{named(changed)} changed while it ran"
    if any(not read.ctime_ns for read in ran.reads):
        return f"it read {_files(ran)} that the line does not declare, and its record does not say what they held"
    if others := [read.path for read in ran.reads if read.left and not _is_in(read.path, home)]:
        return f"it read {named(others)}, which an earlier run left in a home that this run does not have"
    changed = _changed_since(ran)
    which = f"which the line does not declare and which {'is' if len(changed) == 1 else 'are'} not the same"
    return f"it read {named(changed)}, {which} here and now" if changed else ""


def reuse_text(record: Record) -> str:
    """What was compared before the training of `record` is taken over, and what could not be."""
    said = ["same code, environment, plan and declared data"]
    ran = record.ran
    if ran is not None and (ran.reads or ran.listed):
        is_are = "is" if len(ran.reads) + len(ran.listed) == 1 else "are"
        said.append(f"it read {_files_and_folders(ran)} that the line does not declare, which {is_are} unchanged")
    said += invisible_reads(record)
    if ran is not None and record.plan is not None and len(ran.ranks) < record.plan.world_size:
        said.append(f"{len(ran.ranks)} of {record.plan.world_size} ranks reported what they read")
    if ran is not None and ran.hosts:
        said.append(f"it connected to {', '.join(ran.hosts[:_SHOWN])}{_more(ran.hosts)}")
    return "; ".join(said)


def _changed(ran: RuntimeReport) -> tuple[str, ...]:
    return tuple(read.path for read in (*ran.reads, *ran.listed) if read.changed)


def named(paths: Sequence[str]) -> str:
    """`/data/a.txt, /data/b.txt, /data/c.txt and 4 more`."""
    return f"{', '.join(clean(path, limit=120) for path in paths[:_SHOWN])}{_more(paths)}"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""


def _files(ran: RuntimeReport) -> str:
    least = "at least " if len(ran.reads) >= MOST_READS else ""  # several processes may each have read others
    return "1 file" if ran.num_reads == 1 else f"{least}{ran.num_reads} files"


def _files_and_folders(ran: RuntimeReport) -> str:
    least = "at least " if len(ran.listed) >= MOST_LISTED else ""
    folders = f"{least}{ran.num_listed} folder{'' if ran.num_listed == 1 else 's'}" if ran.num_listed else ""
    return " and ".join(each for each in (_files(ran) if ran.num_reads else "", folders) if each)


def _is_native(package: str) -> bool:
    return _BUILD.sub("", package.replace("_", "-").replace(".", "-").lower()) in NATIVE


def _short(path: str, root: Path | None) -> str:
    return str(PurePosixPath(path).relative_to(root)) if root is not None and _is_in(path, root) else path


def _is_in(path: str, folder: Path | None) -> bool:
    return folder is not None and PurePosixPath(path).is_relative_to(folder)
