"""Multipart uploads of any store: the block around one, and removal of those that a crashed writer left open."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from gangline.errors import StorageError, UsageError
from gangline.storage.objects.protocol import ObjectStore, OpenUpload, Upload

MIN_PART_BYTES = 5 * 1024 * 1024
"""Smallest part but the last, by S3's rule."""

AnyUpload = TypeVar("AnyUpload", bound=Upload)


@contextmanager
def finishing(upload: AnyUpload) -> Iterator[AnyUpload]:
    """Complete `upload` at the end of the block, abort it when the block raises.

    An abort that fails too leaves parts behind for `abort_left_uploads`; the block's own error stays the one raised.
    """
    try:
        yield upload
    except BaseException as error:
        try:
            upload.abort()
        except StorageError as second:
            error.add_note(f"upload {upload.upload_id} could not be aborted and stays open: {second}")
        raise
    upload.complete()


def check_previous_part(size_bytes: int | None) -> None:
    """Check the size of the part before a new one is added: only the last may be small."""
    if size_bytes is not None and size_bytes < MIN_PART_BYTES:
        raise UsageError(f"parts of an upload but the last have at least {MIN_PART_BYTES} bytes, found {size_bytes}")


def abort_left_uploads(
    store: ObjectStore, prefix: str, *, older_than_seconds: float, now: float | None = None
) -> list[OpenUpload]:
    """Abort the open uploads below `prefix` that began longer ago than that; returns them.

    Args:
        prefix: Of a run that has ended, with an age of 0; or of all runs, with an age that no living upload has.
        now: Seconds since the epoch; the clock of this machine by default.
    """
    until = (time.time() if now is None else now) - older_than_seconds
    uploads = [upload for upload in store.open_uploads(prefix) if upload.started <= until]
    for upload in uploads:
        store.abort_upload(upload)
    return uploads
