"""The block around a multipart upload, alike for every store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from gangline.errors import StorageError, UsageError
from gangline.storage.protocol import Upload

MIN_PART_BYTES = 5 * 1024 * 1024
"""Smallest part but the last, by S3's rule."""

AnyUpload = TypeVar("AnyUpload", bound=Upload)


@contextmanager
def finishing(upload: AnyUpload) -> Iterator[AnyUpload]:
    """Complete `upload` at the end of the block, abort it when the block raises.

    An abort that fails too leaves parts behind for `storage.collect`; the block's own error stays the one raised.
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
    """Called before a part is added, with the size of the one before: so only the last may be small."""
    if size_bytes is not None and size_bytes < MIN_PART_BYTES:
        raise UsageError(f"parts of an upload but the last have at least {MIN_PART_BYTES} bytes, found {size_bytes}")
