"""`latest.json`: a hint for readers, a fence for writers.

A reader may use it to show how far a run is; what there is to load says the listing. A writer moves it forward by
compare-and-set, and a writer of an older generation finds itself fenced off: its gang was replaced.
"""

from dataclasses import dataclass

from gangline.errors import IntegrityError, StorageError
from gangline.spec.codec import canonical, from_json
from gangline.storage.protocol import ObjectStore

FORMAT = "gangline-latest/1"
_ATTEMPTS = 16
_MAX_BYTES = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class Latest:
    """Newest complete step, None while there is none, and the newest generation that writes."""

    format: str = FORMAT
    step: int | None
    generation: int


class StaleGeneration(IntegrityError):
    """A newer generation of the gang writes now; this one must stop."""


def read_latest(store: ObjectStore, prefix: str) -> Latest | None:
    """The hint; None where there is none or it does not read: then only the listing counts."""
    return _read(store, prefix)[0]


def claim(store: ObjectStore, prefix: str, generation: int) -> None:
    """Fence off all older generations; `StaleGeneration` when a newer one was here first."""
    _move(store, prefix, generation, None)


def advance(store: ObjectStore, prefix: str, generation: int, step: int) -> None:
    """Note a complete step; `StaleGeneration` when a newer generation took over meanwhile."""
    _move(store, prefix, generation, step)


def _move(store: ObjectStore, prefix: str, generation: int, step: int | None) -> None:
    key = f"{prefix}/latest.json"
    for _ in range(_ATTEMPTS):
        found, etag = _read(store, prefix)
        if found and found.generation > generation:
            raise StaleGeneration(
                f"generation {found.generation} writes to {prefix}; generation {generation} must stop"
            )
        wanted = Latest(step=step if step is not None or found is None else found.step, generation=generation)
        if wanted == found:
            return
        data = canonical(wanted)
        moved = store.put_if_absent(key, data) if etag is None else store.compare_and_set(key, data, etag)
        if moved is not None:
            return
    raise StorageError(f"{key} moved {_ATTEMPTS} times while it was read; several gangs write to one run")


def _read(store: ObjectStore, prefix: str) -> tuple[Latest | None, str | None]:
    blob = store.get(f"{prefix}/latest.json", 0, _MAX_BYTES)
    if blob is None:
        return None, None
    try:
        return from_json(Latest, blob.data), blob.etag
    except (IntegrityError, RecursionError):
        return None, blob.etag  # a damaged hint binds nobody; the next save replaces it
