"""Optuna's journal in an object store: one entry an object, written if absent, so that the store decides every race.

    searches/<project>/<id>/journal/00000000.json      an entry of Optuna's log; entries are never changed
    searches/<project>/<id>/journal/pack-0.json        the first 256 of them in one object, made by any reader

A reader sees the entries in one order, whichever process wrote them. Snapshots of Optuna are pickles and are not used.
"""

import json
from collections.abc import Iterable
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from gangline.errors import IntegrityError, StorageError
from gangline.storage.objects.protocol import ObjectStore, get_bounded

PACK = 256
"""Entries that one pack joins."""
MOST_ENTRY_BYTES = 1 << 16
_FIELDS: tuple[frozenset[str], ...] = (
    frozenset({"study_name", "directions"}),
    frozenset({"study_id"}),
    frozenset({"study_id", "user_attr"}),
    frozenset({"study_id", "system_attr"}),
    frozenset({"study_id", "datetime_start"}),
    frozenset({"trial_id", "param_name", "param_value_internal", "distribution"}),
    frozenset({"trial_id", "state", "values"}),
    frozenset({"trial_id", "step", "intermediate_value"}),
    frozenset({"trial_id", "user_attr"}),
    frozenset({"trial_id", "system_attr"}),
    frozenset({"trial_ids"}),
)
"""What an entry has in addition to `op_code` and `worker_id`, by its operation."""


class StoreJournal(BaseJournalBackend):
    """Log below `prefix` of a store, for Optuna's `JournalStorage`; any number of processes may write."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._next = 0
        """Number after the last entry that was seen."""
        self._block: list[bytes] = []
        """Entries since the last whole pack, where they were read one by one."""

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Entries from that number on.

        Raises:
            IntegrityError: An object is no entry, or one is missing before a later one.
            StorageError: The store failed.
        """
        entries: list[dict[str, Any]] = []
        number = log_number_from
        while True:
            if number % PACK == 0:
                self._block = []
                if (pack := self._read_pack(number // PACK)) is not None:
                    entries += pack
                    number += PACK
                    continue
            data = self._read(number)
            if data is None:
                break
            entries.append(_entry(self._key(number), _parsed(self._key(number), data)))
            number += 1
            self._remember(number, data)
        if log_number_from == 0:
            self._require_last(number)
        self._next = max(self._next, number)
        return entries

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write each at the first free number; the loser of a race reads on and takes the next one.

        Raises:
            StorageError: The store failed; what was written stays.
        """
        for log in logs:
            data = json.dumps(log, separators=(",", ":")).encode()
            while self._store.put_if_absent(self._key(self._next), data) is None:
                self._next += 1
                if self._read(self._next - 1) == data:  # the answer to our own write was lost
                    break
            else:
                self._next += 1

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:08d}.json"

    def _read(self, number: int) -> bytes | None:
        blob = get_bounded(self._store, self._key(number), most_bytes=MOST_ENTRY_BYTES)
        return None if blob is None else blob.data

    def _read_pack(self, number: int) -> list[dict[str, Any]] | None:
        key = f"{self._prefix}/pack-{number}.json"
        blob = get_bounded(self._store, key, most_bytes=PACK * (MOST_ENTRY_BYTES + 1))
        if blob is None:
            return None
        plain = _parsed(key, blob.data)
        if not isinstance(plain, list) or len(plain) != PACK:
            raise IntegrityError(f"{key}: wanted {PACK} entries of a search's journal, found something else")
        return [_entry(key, each) for each in plain]

    def _remember(self, number: int, data: bytes) -> None:
        """Keep an entry that was read, and join a whole block of them: equal bytes, whichever process does it."""
        self._block.append(data)
        if number % PACK or len(self._block) != PACK:
            return
        pack = b"[" + b",".join(self._block) + b"]"
        try:
            self._store.put_if_absent(f"{self._prefix}/pack-{number // PACK - 1}.json", pack)
        except StorageError:
            return  # a reader that may not write reads one by one

    def _require_last(self, number: int) -> None:
        """Raise IntegrityError where there are entries behind a missing one; a new one would take its place."""
        later = self._store.list(f"{self._prefix}/", self._key(number), 1)
        is_entry = bool(later) and not later[0].key.startswith(f"{self._prefix}/pack-")
        if is_entry and self._read(number) is None:
            raise IntegrityError(f"{self._key(number)}: wanted an entry of a search's journal, found it missing")


def _parsed(key: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{key}: wanted an entry of a search's journal, found no JSON") from error


def _entry(key: str, plain: Any) -> dict[str, Any]:
    """`plain` if Optuna could have written it."""
    code = plain.get("op_code") if isinstance(plain, dict) else None
    wanted = _FIELDS[code] if type(code) is int and 0 <= code < len(_FIELDS) else None
    if wanted is None or not isinstance(plain.get("worker_id"), str) or not plain.keys() >= wanted:
        raise IntegrityError(f"{key}: wanted an entry of Optuna's log, found another document")
    return dict(plain)
