"""Removes what crashed writers left in a store: multipart uploads that nobody will complete."""

import time

from gangline.storage.protocol import ObjectStore, OpenUpload


def abort_left_uploads(
    store: ObjectStore, prefix: str, *, older_than_seconds: float, now: float | None = None
) -> list[OpenUpload]:
    """Abort the open uploads below `prefix` that began longer ago than that; returns them.

    Args:
        prefix: Of a run that has ended, with an age of 0; or of all runs, with an age that no living upload has.
        now: Seconds since the epoch; the clock of this machine by default.
    """
    until = (time.time() if now is None else now) - older_than_seconds
    left = [upload for upload in store.open_uploads(prefix) if upload.started <= until]
    for upload in left:
        store.abort_upload(upload)
    return left
