"""Which runs a store holds, found by listing records; and which of them are open, by a marker each.

`open/<project>/<run>` is written before a record is born and deleted after it ended: what must look at open runs
(superseding, sweeping, limits) reads these few instead of all records. A marker that outlived its run is harmless.

One object that is no record keeps nobody from the others: it is passed over, and `on_refused` is told.
"""

from collections.abc import Callable, Iterator

from gangline.errors import IntegrityError, UsageError
from gangline.line.record.store import RecordStore
from gangline.spec import identity
from gangline.spec.record import Record, run_prefix
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all

_PAST_ALL = "zzzzzzzz"
"""Sorts after every name that lies in a run's folder."""
_MOST_MARKER_BYTES = 64
OnRefused = Callable[[str, IntegrityError], object]
"""Told of the key of an object that is not the record it should be, and why."""


def log_refused(key: str, error: IntegrityError) -> None:
    import structlog  # a third of what a task of a pipeline imports, as it brings rich and asyncio along

    structlog.get_logger().warning("record_refused", key=key, cause=str(error))


def list_runs(
    store: ObjectStore, *, project: str | None = None, commit: str | None = None, on_refused: OnRefused = log_refused
) -> Iterator[Record]:
    """Records in key order, of one project or commit (its full name, with the project) where given."""
    prefix = "runs/" + (f"{project}/" if project else "") + (f"{commit}/" if project and commit else "")
    for run in _run_prefixes(store, prefix):
        record = _read(store, run, on_refused)
        if record is not None and (commit is None or record.commit.sha.startswith(commit)):
            yield record


def find_run(store: ObjectStore, run: str) -> Record:
    """The record of a run id, or of the beginning of one that no other run shares.

    Raises:
        UsageError: There is none, or several; they are named.
        IntegrityError: What lies there is no record, or that of another run.
    """
    pieces = run.rsplit("-", 2)
    whole = len(pieces) == 3 and len(pieces[1]) == 8 and len(pieces[2]) == 6
    prefix = f"runs/{pieces[0]}/{pieces[1]}" if whole else "runs/"
    found = [each for each in _run_prefixes(store, prefix) if each.rsplit("/", 1)[1].startswith(run)]
    exact = [each for each in found if each.rsplit("/", 1)[1] == run] or found
    if not run or len(exact) != 1:
        raise UsageError(_not_one(run, [each.rsplit("/", 1)[1] for each in exact]))
    record = RecordStore(store, exact[0]).read()
    if record is None:
        raise UsageError(f"{exact[0]} holds no record.json; was the run deleted? gangline list shows what is there")
    return record


def mark_open(store: ObjectStore, record: Record) -> None:
    store.put(f"open/{record.run.project}/{record.run.id}", record.commit.sha.encode())


def unmark_open(store: ObjectStore, record: Record) -> None:
    store.delete(f"open/{record.run.project}/{record.run.id}")


def open_runs(
    store: ObjectStore, project: str | None = None, *, on_refused: OnRefused = log_refused
) -> Iterator[Record]:
    """Runs that have not ended; markers of others are removed on the way."""
    for entry in list(list_all(store, f"open/{project}/" if project else "open/")):
        prefix = _marked_prefix(store, entry.key, on_refused)
        record = None if prefix is None else _read(store, prefix, on_refused)
        if record is not None and record.run.state == "ended":
            store.delete(entry.key)
        elif record is not None:
            yield record


def _read(store: ObjectStore, prefix: str, on_refused: OnRefused) -> Record | None:
    """None where there is none, or none that can be read as the record of its key."""
    records = RecordStore(store, prefix)
    try:
        return records.read()
    except IntegrityError as error:
        on_refused(records.key, error)
        return None


def _marked_prefix(store: ObjectStore, marker: str, on_refused: OnRefused) -> str | None:
    """Of the run that a marker in `open/` is for; None where the marker is gone, or no marker."""
    try:
        blob = get_bounded(store, marker, most_bytes=_MOST_MARKER_BYTES)
    except IntegrityError as error:
        on_refused(marker, error)
        return None
    if blob is None:
        return None
    _, project, run = (*marker.split("/", 2), "")[:3]
    prefix = run_prefix(project, blob.data.decode("ascii", "replace"), run)
    if not identity.is_run_prefix(prefix):
        on_refused(marker, IntegrityError(f"{marker}: wanted the commit of that run, found {blob.data!r}"))
        return None
    return prefix


def _run_prefixes(store: ObjectStore, prefix: str) -> Iterator[str]:
    """`runs/<project>/<commit>/<run>` below `prefix`, one listing each, however much lies inside."""
    after = ""
    while entries := store.list(prefix, after, 1):
        parts = entries[0].key.split("/")
        if len(parts) < 5:
            after = entries[0].key
            continue
        run = "/".join(parts[:4])
        if identity.is_run_prefix(run):
            yield run
        after = f"{run}/{_PAST_ALL}"


def _not_one(run: str, found: list[str]) -> str:
    if not found:
        return f"there is no run {run!r} in this store; gangline list shows what is there"
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return f"wanted the beginning of one run id, found {len(found)} for {run!r}: {shown}; write more of it"
