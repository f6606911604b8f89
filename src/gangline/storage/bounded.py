"""Reading objects that somebody else may have written: the size is known before any content is in memory."""

from gangline.errors import IntegrityError
from gangline.storage.protocol import Blob, ObjectStore
from gangline.units import format_bytes


def get_bounded(store: ObjectStore, key: str, *, most_bytes: int) -> Blob | None:
    """The whole object, of at most `most_bytes`; None where there is none.

    Raises:
        IntegrityError: It is larger; no more than `most_bytes` of it were read.
    """
    blob = store.get(key, 0, most_bytes)
    if blob is not None and blob.size_bytes > most_bytes:
        raise IntegrityError(
            f"{key}: wanted at most {format_bytes(most_bytes)}, found {format_bytes(blob.size_bytes)}; not read"
        )
    return blob
