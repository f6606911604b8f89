"""Which checkpoints stay, and what no manifest names any more. No torch.

A checkpoint goes manifest first, then its files: a crash between leaves files that nothing lists, for `collect`.
"""

import math
import re
import sys
from collections.abc import Sequence

from gangline.checkpoint.format.manifest import (
    MANIFEST,
    ListedCheckpoint,
    RefusedCheckpoint,
    list_checkpoints,
    read_manifest,
)
from gangline.storage.objects.errors import PermissionDenied
from gangline.storage.objects.protocol import ObjectStore, OpenUpload, list_all

ORPHAN_SECONDS = 60.0
MOST_CHECKPOINTS = 10_000
"""Whose manifests are read, one by one, to see which files are left over."""

_GENERATION = re.compile(r"g(\d{4,})-")


def retain(store: ObjectStore, prefix: str, key: bytes, *, keep: int) -> list[int]:
    """Delete all but the newest `keep` checkpoints; returns the steps that went.

    The newest whose manifest verifies always stays.
    """
    found = list_checkpoints(store, prefix)
    newest_good = next((each.step for each in found if _verifies(store, each, key)), None)
    doomed = [each for each in found[max(keep, 1) :] if each.step != newest_good]
    for each in doomed:
        _delete(store, each.prefix)
    return [each.step for each in doomed]


def collect(
    store: ObjectStore, prefix: str, key: bytes, *, now: float, older_than: float = ORPHAN_SECONDS, generation: int = 0
) -> list[str]:
    """Delete files that no manifest lists and abandoned uploads: old ones, and those of generations that were replaced.

    Args:
        now: Seconds since the epoch, by the store's clock: a save in flight writes files younger than its age.
        older_than: Seconds; infinity leaves it to `generation`.
        generation: The one that writes now; what an older one left unfinished goes at any age.

    Returns:
        The keys that went.
    """

    def is_over(name: str, since: float) -> bool:
        writer = _GENERATION.match(name.rpartition("/")[2])
        return now - since > older_than or (writer is not None and int(writer[1]) < generation)

    listed = _listed_files(store, prefix, key)
    if listed is None:
        return []
    gone = []
    for entry in list_all(store, f"{prefix}/step-"):
        if entry.key not in listed and is_over(entry.key, entry.modified):
            store.delete(entry.key)
            gone.append(entry.key)
    for upload in _open_uploads(store, f"{prefix}/step-"):
        if is_over(upload.key, upload.started):
            store.abort_upload(upload)
            gone.append(upload.key)
    return gone


def collect_left_files(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Delete what a run that nobody writes to any more left unfinished, at any age; files of others stay."""
    return collect(store, prefix, key, now=0.0, older_than=math.inf, generation=sys.maxsize)


def _open_uploads(store: ObjectStore, prefix: str) -> Sequence[OpenUpload]:
    """None where the credential may not see them: those of a gang are its driver's to abort when the run ends."""
    try:
        return store.open_uploads(prefix)
    except PermissionDenied:
        return ()


def _verifies(store: ObjectStore, found: ListedCheckpoint, key: bytes) -> bool:
    try:
        read_manifest(store, found.prefix, key)
    except RefusedCheckpoint:
        return False
    return True


def _delete(store: ObjectStore, folder: str) -> None:
    store.delete(f"{folder}/{MANIFEST}")
    for entry in list(list_all(store, f"{folder}/")):
        store.delete(entry.key)


def _listed_files(store: ObjectStore, prefix: str, key: bytes) -> set[str] | None:
    """Keys that a manifest accounts for; of a folder whose manifest does not verify, all of them: it is evidence.

    None where there are more checkpoints than any retention keeps: whoever wrote them is not tidied up after.
    """
    kept: set[str] = set()
    checkpoints = list_checkpoints(store, prefix)
    if len(checkpoints) > MOST_CHECKPOINTS:
        return None
    for found in checkpoints:
        try:
            names = [*read_manifest(store, found.prefix, key).files, MANIFEST]
        except RefusedCheckpoint:
            names = [entry.key.rpartition("/")[2] for entry in list_all(store, f"{found.prefix}/")]
        kept.update(f"{found.prefix}/{name}" for name in names)
    return kept
