"""Quarantine of records that cannot be read: by key, logged once per version of the object, listed until repaired.

An object that is too large, no record, or the record of another key does not keep the other records from being read.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from gangline.errors import GanglineError, StorageError
from gangline.sanitize import clean
from gangline.storage.objects.protocol import Entry, ObjectStore

MAX_RECORDS = 1000
"""Records that are remembered; more are only counted."""
MAX_REASON_CHARACTERS = 300
"""Characters of a reason."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A key below which no record could be read, and why."""

    key: str
    why: str

    @property
    def project(self) -> str:
        """Project that the key names; nothing else is looked at."""
        return (*self.key.split("/", 2), "")[1]


class _RefusedVersion(NamedTuple):
    refused: RefusedRecord
    version: tuple[float, int]
    """When the object was written, and its size."""


class Quarantine:
    """Thread-safe; one a service."""

    def __init__(self) -> None:
        self._refused: dict[str, _RefusedVersion] = {}
        self._lock = threading.Lock()

    def refuse(self, key: str, error: Exception, entry: Entry | None) -> None:
        """Remember `key`; `entry` is the object as it is, None where it is gone."""
        if entry is None:
            self.accept(key)
            return
        why = str(error) if isinstance(error, GanglineError) else f"{type(error).__name__}: {error}"
        refused = RefusedRecord(key, clean(why[: 2 * MAX_REASON_CHARACTERS], limit=MAX_REASON_CHARACTERS))
        version = (entry.modified, entry.size_bytes)
        with self._lock:
            refused_version = self._refused.get(key)
            if (refused_version is not None and refused_version.version == version) or (
                refused_version is None and len(self._refused) >= MAX_RECORDS
            ):
                return
            self._refused[key] = _RefusedVersion(refused, version)
        bug = None if isinstance(error, GanglineError) else error
        log.warning("record_refused", key=key, cause=refused.why, exc_info=bug)

    def accept(self, key: str) -> None:
        """It was read, or is gone."""
        with self._lock:
            self._refused.pop(key, None)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget keys that are no longer in the store."""
        with self._lock:
            self._refused = {key: version for key, version in self._refused.items() if not is_gone(key)}

    def prefixes(self, beginning: str) -> set[str]:
        """Folders of the keys with this prefix."""
        with self._lock:
            return {key.rpartition("/")[0] for key in self._refused if key.startswith(beginning)}

    def list_refused(self, projects: Sequence[str] | None, project: str | None = None) -> list[RefusedRecord]:
        """Those of some projects, None: of all; by key. With `project` those of this one alone."""
        with self._lock:
            records = [version.refused for version in self._refused.values()]
        chosen = (record for record in records if projects is None or record.project in projects)
        return sorted((record for record in chosen if project in (None, record.project)), key=lambda record: record.key)

    def __contains__(self, key: str) -> bool:
        return key in self._refused

    def __len__(self) -> int:
        return len(self._refused)


def refuse_record(quarantine: Quarantine, store: ObjectStore, key: str, error: Exception) -> None:
    """Refuse an object that the caller has not read; a store that is away is no reason."""
    if isinstance(error, StorageError):
        raise error
    quarantine.refuse(key, error, store.head(key))
