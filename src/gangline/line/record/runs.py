"""Runs of a store: list them, find one by its id, list the open ones.

A marker `open/<project>/<run>` is written before a record is created and deleted after the run ended, so that
superseding, sweeping and limits read the few open runs instead of all records. A marker without an open run is
harmless.

An object that is not a valid record is skipped and reported to `on_refused`; the others are listed.
"""

from collections.abc import Callable, Iterator

from gangline.errors import IntegrityError, UsageError
from gangline.line.record.store import RecordStore
from gangline.signing.record_seal import Sealer
from gangline.spec import identity
from gangline.spec.record import Record, run_prefix
from gangline.storage.objects.protocol import ObjectStore, get_bounded, list_all

_AFTER_ALL = "zzzzzzzz"
"""Sorts after every name in a run's folder."""
_MOST_MARKER_BYTES = 64
OnRefused = Callable[[str, IntegrityError], object]
"""Called with the key of an object that is not the record it should be, and the reason."""


def log_refused(key: str, error: IntegrityError) -> None:
    """Log a record that is not valid; the default of `list_runs`."""
    import structlog  # imported late: with rich and asyncio it is a third of what a pipeline task imports

    structlog.get_logger().warning("record_refused", key=key, cause=str(error))


def list_runs(
    store: ObjectStore, *, project: str | None = None, commit: str | None = None, on_refused: OnRefused = log_refused
) -> Iterator[Record]:
    """Records in key order; of one project, or of one commit (its full SHA, with the project)."""
    prefix = "runs/" + (f"{project}/" if project else "") + (f"{commit}/" if project and commit else "")
    for run in _run_prefixes(store, prefix):
        record = _read(store, run, on_refused)
        if record is not None and (commit is None or record.commit.sha.startswith(commit)):
            yield record


def find_run(store: ObjectStore, run: str) -> Record:
    """The record of the run whose id is `run` or, uniquely, begins with it.

    Raises:
        UsageError: No run or several runs match; the message names them.
        IntegrityError: The object is no record, or the record of another run.
    """
    pieces = run.rsplit("-", 2)
    whole = len(pieces) == 3 and len(pieces[1]) == 8 and len(pieces[2]) == 6
    prefix = f"runs/{pieces[0]}/{pieces[1]}" if whole else "runs/"
    found = [each for each in _run_prefixes(store, prefix) if each.rsplit("/", 1)[1].startswith(run)]
    exact = [each for each in found if each.rsplit("/", 1)[1] == run] or found
    if not run or len(exact) != 1:
        raise UsageError(_no_single_match(run, [each.rsplit("/", 1)[1] for each in exact]))
    record = RecordStore(store, exact[0]).read()
    if record is None:
        raise UsageError(f"{exact[0]} has no record.json; was the run deleted? gangline list shows the runs")
    return record


def read_base(store: ObjectStore, record: Record, sealer: Sealer) -> Record | None:
    """Record of the run that `record` is compared with; None: it has none, or that was deleted.

    Raises:
        IntegrityError: Its seal is invalid.
    """
    base = record.commit.base
    if base is None:
        return None
    found = RecordStore(store, run_prefix(record.run.project, base.commit, base.run)).read()
    return None if found is None else sealer.check(found)


def mark_open(store: ObjectStore, record: Record) -> None:
    """Write the marker of an open run, by which `open_runs` finds it."""
    store.put(f"open/{record.run.project}/{record.run.id}", record.commit.sha.encode())


def unmark_open(store: ObjectStore, record: Record) -> None:
    """Delete the marker of a run that has ended."""
    store.delete(f"open/{record.run.project}/{record.run.id}")


def open_runs(
    store: ObjectStore, project: str | None = None, *, on_refused: OnRefused = log_refused
) -> Iterator[Record]:
    """Runs that have not ended; deletes markers of runs that have."""
    for entry in list(list_all(store, f"open/{project}/" if project else "open/")):
        prefix = _marked_prefix(store, entry.key, on_refused)
        record = None if prefix is None else _read(store, prefix, on_refused)
        if record is not None and record.run.state == "ended":
            store.delete(entry.key)
        elif record is not None:
            yield record


def _read(store: ObjectStore, prefix: str, on_refused: OnRefused) -> Record | None:
    """None if there is no record, or no valid one."""
    records = RecordStore(store, prefix)
    try:
        return records.read()
    except IntegrityError as error:
        on_refused(records.key, error)
        return None


def _marked_prefix(store: ObjectStore, marker: str, on_refused: OnRefused) -> str | None:
    """Prefix of the run of a marker in `open/`; None if the marker is gone or invalid."""
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
    """`runs/<project>/<commit>/<run>` below `prefix`, with one list request per run."""
    after = ""
    while entries := store.list(prefix, after, 1):
        parts = entries[0].key.split("/")
        if len(parts) < 5:
            after = entries[0].key
            continue
        run = "/".join(parts[:4])
        if identity.is_run_prefix(run):
            yield run
        after = f"{run}/{_AFTER_ALL}"


def _no_single_match(run: str, found: list[str]) -> str:
    if not found:
        return f"there is no run {run!r} in this store; gangline list shows the runs"
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return f"wanted the beginning of one run id, found {len(found)} for {run!r}: {shown}; write more of it"
