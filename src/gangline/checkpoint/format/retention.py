"""Retention: deletes old checkpoints, and files that no manifest lists. No torch.

The manifest is deleted first, then its files: after a crash in between, `collect` deletes the files that are left.
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
"""`collect` reads the manifest of each; above this number it deletes nothing."""

_GENERATION = re.compile(r"g(\d{4,})-")


def retain(store: ObjectStore, prefix: str, key: bytes, *, keep: int) -> list[int]:
    """Delete all but the newest `keep` checkpoints, and return their steps.

    The newest one whose manifest verifies always stays.
    """
    checkpoints = list_checkpoints(store, prefix)
    newest_good = next((checkpoint.step for checkpoint in checkpoints if _verifies(store, checkpoint, key)), None)
    expired = [checkpoint for checkpoint in checkpoints[max(keep, 1) :] if checkpoint.step != newest_good]
    for checkpoint in expired:
        store.delete(f"{checkpoint.prefix}/{MANIFEST}")
        for entry in list(list_all(store, f"{checkpoint.prefix}/")):
            store.delete(entry.key)
    return [checkpoint.step for checkpoint in expired]


def collect(
    store: ObjectStore, prefix: str, key: bytes, *, now: float, older_than: float = ORPHAN_SECONDS, generation: int = 0
) -> list[str]:
    """Delete files that no manifest lists and abandoned uploads: old ones, and those of replaced generations.

    Args:
        now: Seconds since the epoch, by the store's clock: files of a save in flight are younger than `older_than`.
        older_than: Seconds; with infinity only `generation` counts.
        generation: The one that writes now; files of older ones are deleted at any age.

    Returns:
        The keys that were deleted.
    """

    def is_over(name: str, since: float) -> bool:
        writer = _GENERATION.match(name.rpartition("/")[2])
        return now - since > older_than or (writer is not None and int(writer[1]) < generation)

    listed = _listed_files(store, prefix, key)
    if listed is None:
        return []
    deleted = []
    for entry in list_all(store, f"{prefix}/step-"):
        if entry.key not in listed and is_over(entry.key, entry.modified):
            store.delete(entry.key)
            deleted.append(entry.key)
    for upload in _open_uploads(store, f"{prefix}/step-"):
        if is_over(upload.key, upload.started):
            store.abort_upload(upload)
            deleted.append(upload.key)
    return deleted


def collect_left_files(store: ObjectStore, prefix: str, key: bytes) -> list[str]:
    """Delete unfinished files of a run that has ended, at any age; listed files stay."""
    return collect(store, prefix, key, now=0.0, older_than=math.inf, generation=sys.maxsize)


def _open_uploads(store: ObjectStore, prefix: str) -> Sequence[OpenUpload]:
    """Uploads below `prefix`; none if the credential may not list them: then the driver aborts them at the end."""
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


def _listed_files(store: ObjectStore, prefix: str, key: bytes) -> set[str] | None:
    """Keys that a manifest lists; of a folder whose manifest does not verify all keys, which are evidence.

    None if there are more than `MOST_CHECKPOINTS`: such a run does not use retention.
    """
    kept: set[str] = set()
    checkpoints = list_checkpoints(store, prefix)
    if len(checkpoints) > MOST_CHECKPOINTS:
        return None
    for checkpoint in checkpoints:
        try:
            names = [*read_manifest(store, checkpoint.prefix, key).files, MANIFEST]
        except RefusedCheckpoint:
            names = [entry.key.rpartition("/")[2] for entry in list_all(store, f"{checkpoint.prefix}/")]
        kept.update(f"{checkpoint.prefix}/{name}" for name in names)
    return kept
