"""Tries what the rest of gangline relies on, in a store that is new to this process: fail closed, then trust it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from secrets import token_hex

from gangline.errors import StorageError
from gangline.storage.objects.protocol import ObjectStore

MAX_CLOCK_SKEW_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreCheck:
    """One thing that was tried."""

    name: str
    passed: bool
    reason: str
    """What was found; for a failed one, also what follows from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreProbe:
    """Results of the checks of one store."""

    checks: tuple[StoreCheck, ...]

    @property
    def conditional_writes(self) -> bool:
        """Whether two drivers may share this store, and whether it may hold promotions."""
        return all(check.passed for check in self.checks if check.name in _CONDITIONAL)

    @property
    def passed(self) -> bool:
        """Every check passed."""
        return all(check.passed for check in self.checks)


_known: dict[str, StoreProbe] = {}


def probe(store: ObjectStore) -> StoreProbe:
    """Check `store` with small objects below `probe/`, once for each store in a process.

    Raises:
        StorageError: The store cannot be written or read at all.
    """
    store_probe = _known.get(store.url)
    if store_probe is None:
        store_probe = _known[store.url] = _probed(store, f"probe/{token_hex(8)}")
    return store_probe


def _probed(store: ObjectStore, folder: str) -> StoreProbe:
    keys = [f"{folder}/{name}" for name in ("first", "next", "missing")]
    store.get(keys[0])  # a store that does not answer or refuses the credentials fails here, with nothing to clean up
    try:
        checks = [_checked(name, partial(check, store, folder)) for name, check in _CHECKS.items()]
    finally:
        for key in keys:
            store.delete(key)
    return StoreProbe(checks=tuple(checks))


def _checked(name: str, check: Callable[[], str | None]) -> StoreCheck:
    """A check returns the problem, or None. It fails if the store refuses it; an unreachable store raises."""
    wrong = check()
    return StoreCheck(name=name, passed=wrong is None, reason=wrong or "holds")


def _read_after_write(store: ObjectStore, folder: str) -> str | None:
    key = f"{folder}/next"
    for data in (b"one", b"two"):
        etag = store.put(key, data)
        blob = store.get(key)
        if blob is None or blob.data != data or blob.etag != etag:
            return f"wrote {data!r}, read {blob.data if blob else None!r}: an old version was answered"
    return None


def _list_after_write(store: ObjectStore, folder: str) -> str | None:
    store.put(f"{folder}/next", b"listed")
    before = [entry.key for entry in store.list(f"{folder}/next")]
    store.delete(f"{folder}/next")
    after = [entry.key for entry in store.list(f"{folder}/next")]
    if before == [f"{folder}/next"] and not after:
        return None
    return f"a listing showed {len(before)} keys after a write and {len(after)} after its deletion, not 1 and 0"


def _first_writer_wins(store: ObjectStore, folder: str) -> str | None:
    key = f"{folder}/first"
    store.delete(key)
    first, second = _attempt(store.put_if_absent, key, b"one"), _attempt(store.put_if_absent, key, b"two")
    if isinstance(first, StorageError) or first is None:
        return f"If-None-Match: * did not write a new key ({first})"
    blob = store.get(key)
    if second is not None or blob is None or blob.data != b"one":
        return "If-None-Match: * replaced an object: the server ignores the condition"
    return None


def _stale_writer_loses(store: ObjectStore, folder: str) -> str | None:
    key = f"{folder}/next"
    old = store.put(key, b"one")
    new = _attempt(store.compare_and_set, key, b"two", old)
    if isinstance(new, StorageError) or new is None:
        return f"If-Match with the current version did not write ({new})"
    stale = _attempt(store.compare_and_set, key, b"three", old)
    blob = store.get(key)
    if stale is not None or blob is None or blob.data != b"two":
        return "If-Match with a stale version replaced the object: the server ignores the condition"
    return None


def _missing_key_loses(store: ObjectStore, folder: str) -> str | None:
    key = f"{folder}/missing"
    etag = store.put(key, b"one")
    store.delete(key)
    answer = _attempt(store.compare_and_set, key, b"two", etag)
    if answer is not None or store.head(key) is not None:
        return f"If-Match on a missing key was not refused ({answer})"
    return None


def _clocks_agree(store: ObjectStore, folder: str) -> str | None:
    store.put(f"{folder}/next", b"clock")
    now = time.time()
    entry = store.head(f"{folder}/next")
    skew = abs(entry.modified - now) if entry else 0.0
    if skew <= MAX_CLOCK_SKEW_SECONDS:
        return None
    return f"the store's clock and ours differ by {skew:.0f} s; synchronise both, signatures and leases depend on it"


def _attempt(write: Callable[..., str | None], *arguments: object) -> str | StorageError | None:
    """Here a refusal is a result."""
    try:
        return write(*arguments)
    except StorageError as error:
        return error


_CHECKS: dict[str, Callable[[ObjectStore, str], str | None]] = {
    "read after write": _read_after_write,
    "list after write": _list_after_write,
    "first writer wins": _first_writer_wins,
    "stale writer loses": _stale_writer_loses,
    "missing key loses": _missing_key_loses,
    "clocks agree": _clocks_agree,
}
_CONDITIONAL = ("read after write", "first writer wins", "stale writer loses", "missing key loses")
