"""Writes to S3 whose response may be lost; the outcome is settled by reading back."""

from collections.abc import Mapping
from secrets import token_hex

from gangline.errors import StorageError
from gangline.http.client import HttpResponse
from gangline.http.retry import OutcomeUnknown
from gangline.storage.objects.protocol import Etag
from gangline.storage.s3.client import S3Client
from gangline.storage.s3.names import WRITE_ID_HEADER


def etag_of(answer: HttpResponse) -> Etag:
    """The `ETag` header without its quotes."""
    return answer.headers["ETag"].strip('"')


def was_written(wire: S3Client, path: str, write_id: str) -> Etag | None:
    """Etag of the object at `path` if it is the one that was written with `write_id`."""
    found, is_ours = _look(wire, path, write_id)
    return found if is_ours else None


def write(wire: S3Client, path: str, data: bytes, condition: Mapping[str, str]) -> Etag | None:
    """PUT under `condition` (If-Match or If-None-Match, or none); None: the condition did not hold.

    Raises:
        StorageError: Refused; or the outcome cannot be known.
    """
    write_id = token_hex(16)
    lost = 0

    def attempt() -> Etag | None:
        nonlocal lost
        if lost and (etag := _settled(wire, path, write_id, condition)):
            return etag
        try:
            answer = wire.once(
                "PUT", path, headers={**condition, WRITE_ID_HEADER: write_id}, body=data, accept=(404, 412)
            )
        except OutcomeUnknown:
            lost += 1
            raise
        if answer.status < 300:
            return etag_of(answer)
        if answer.status == 404 and "If-Match" not in condition:
            raise wire.refused("PUT", path, answer)
        if lost and (etag := was_written(wire, path, write_id)):
            return etag
        if lost:
            raise _unknown_outcome(wire, path)
        return None

    return wire.retrying(f"PUT {path}", attempt)


def _settled(wire: S3Client, path: str, write_id: str, condition: Mapping[str, str]) -> Etag | None:
    """Settle an unknown outcome: the etag if the write happened, None if it may be sent again."""
    found, is_ours = _look(wire, path, write_id)
    if is_ours:
        return found
    still_holds = {
        "If-None-Match": found is None,
        "If-Match": found is not None and f'"{found}"' == condition.get("If-Match"),
    }
    if not all(still_holds[name] for name in condition):
        raise _unknown_outcome(wire, path)
    return None


def _look(wire: S3Client, path: str, write_id: str) -> tuple[Etag | None, bool]:
    """Etag of the object at `path`, and whether it was written with `write_id`."""
    answer = wire.once("HEAD", path, accept=(404,))
    return (None, False) if answer.status == 404 else (etag_of(answer), answer.headers.get(WRITE_ID_HEADER) == write_id)


def _unknown_outcome(wire: S3Client, path: str) -> StorageError:
    return StorageError(
        f"store {wire.place.url}: the response to the write of {path} was lost, and another version is there now: "
        "ours may have been written and replaced; read it, then decide"
    )
