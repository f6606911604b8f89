"""Requests about objects of an `S3Store`: writes, listings, multipart uploads; minio reads the bodies.

Writes whose response may be lost are settled by reading back. Writers below a prefix choose the names of objects, and
XML cannot carry every name: listings are requested URL-encoded. A server that repeats a page is an error, not a loop.

MinIO lists the open uploads of one key, not of a prefix. So each multipart upload first leaves a note, a hidden empty
object below `.uploads~/<key>/`, and removes it at its end: a listing asks for the keys that have notes. A note whose
upload never began, or ended in a crash, is listed as an upload without id; aborting that removes the note.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any, TypeVar

from minio.datatypes import CompleteMultipartUploadResult, ListMultipartUploadsResult, parse_list_objects

from gangline.errors import StorageError
from gangline.http.client import HttpResponse
from gangline.http.retry import OutcomeUnknown
from gangline.storage.objects.multipart import check_previous_part
from gangline.storage.objects.protocol import Entry, Etag, OpenUpload
from gangline.storage.s3.client import S3Client
from gangline.storage.s3.errors import error_code
from gangline.storage.s3.names import UPLOAD_NOTES_PREFIX, WRITE_ID_HEADER


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


Page = TypeVar("Page")
_ENCODED = {"encoding-type": "url"}
_PAGE = 1000


def list_page(wire: S3Client, prefix: str, after: str, size: int) -> Sequence[Entry]:
    """One page of full paths below `prefix`, whatever their names."""
    query = {"list-type": "2", "prefix": prefix, "max-keys": str(size), **_ENCODED}
    answer = wire.send("GET", query=query | ({"start-after": after} if after else {}))
    objects, *_ = _read(wire, prefix, answer, parse_list_objects)
    entries = [
        Entry(each.object_name, each.size, each.last_modified.timestamp())
        for each in objects
        if each.object_name is not None and each.size is not None and each.last_modified is not None
    ]
    if entries and after and entries[-1].key.encode(errors="replace") <= after.encode(errors="replace"):
        raise _repeats(wire, prefix)
    return entries


def list_uploads(wire: S3Client, root: str, prefix: str) -> Sequence[OpenUpload]:
    """Open uploads below `root` whose key begins with `prefix`; MinIO lists those of the key `prefix` alone."""
    uploads: list[OpenUpload] = []
    query = {"uploads": "", "prefix": root + prefix, "max-uploads": str(_PAGE), **_ENCODED}
    while True:
        page = _read(wire, prefix, wire.send("GET", query=query), ListMultipartUploadsResult)
        listed = [
            OpenUpload(upload.object_name.removeprefix(root), upload.upload_id, upload.initiated_time.timestamp())
            for upload in page.uploads
            if upload.object_name and upload.upload_id and upload.initiated_time
        ]
        if listed and listed[-1] in uploads:
            raise _repeats(wire, prefix)
        uploads += listed
        if not page.is_truncated or not listed:
            return uploads
        query |= {"key-marker": root + uploads[-1].key, "upload-id-marker": uploads[-1].upload_id}


def _read(wire: S3Client, prefix: str, answer: HttpResponse, parse: Callable[[Any], Page]) -> Page:
    try:
        return parse(answer)
    except (ET.ParseError, ValueError) as error:
        raise StorageError(
            f"store {wire.place.url}: wanted a listing of {prefix or 'all keys'} as S3 XML ({error}); "
            "is store.endpoint that of an S3 server?"
        ) from error


def _repeats(wire: S3Client, prefix: str) -> StorageError:
    return StorageError(
        f"store {wire.place.url}: the listing of {prefix or 'all keys'} does not continue after its last name; "
        "delete objects there whose names have control characters"
    )


class S3Upload:
    """One multipart upload of the object `prefix` + `key`, begun by its construction."""

    def __init__(self, wire: S3Client, prefix: str, key: str) -> None:
        self._wire = wire
        self._path = prefix + key
        self._word = token_hex(16)
        self._note = f"{prefix}{UPLOAD_NOTES_PREFIX}{key}/~{self._word}"
        self._part_etags: list[str] = []
        self._last_size: int | None = None
        self._etag: Etag | None = None
        self._lost_answers = 0
        wire.send("PUT", self._note)
        answer = wire.retrying(f"begin {self._path}", self._begin_once)
        found = ET.fromstring(answer.data).findtext("{*}UploadId")  # noqa: S314  expat expands nothing from outside
        if not found:
            raise StorageError(f"store {wire.place.url}: wanted an upload id for {key}, found {answer.data[:100]!r}")
        self.upload_id = found

    def part(self, data: bytes | memoryview) -> None:
        check_previous_part(self._last_size)
        query = {"partNumber": str(len(self._part_etags) + 1), "uploadId": self.upload_id}
        answer = self._wire.send("PUT", self._path, query=query, body=data)
        self._part_etags.append(answer.headers["ETag"])
        self._last_size = len(data)

    def complete(self) -> Etag:
        if self._etag is None:
            if not self._part_etags:
                self.part(b"")
            self._etag = self._wire.retrying(f"complete {self._path}", self._complete_once)
            self._forget()
        return self._etag

    def abort(self) -> None:
        self._wire.send("DELETE", self._path, query={"uploadId": self.upload_id}, accept=(404,))
        self._forget()

    def _begin_once(self) -> HttpResponse:
        try:
            return self._wire.once("POST", self._path, query={"uploads": ""}, headers={WRITE_ID_HEADER: self._word})
        except OutcomeUnknown:
            self._lost_answers += 1
            raise

    def _forget(self) -> None:
        """Remove the note, unless a second upload may have begun: then the sweep needs it to find that upload."""
        if not self._lost_answers:
            self._wire.send("DELETE", self._note, accept=(404,))

    def _complete_once(self) -> Etag:
        query = {"uploadId": self.upload_id}
        answer = self._wire.once("POST", self._path, query=query, body=_manifest(self._part_etags), accept=(404,))
        if answer.status == 404:  # gone: by an earlier try of ours, or aborted by another
            if etag := was_written(self._wire, self._path, self._word):
                return etag
            raise self._wire.refused("POST", self._path, answer)
        if code := error_code(answer):  # S3 may answer 200 first and find the error later
            raise OutcomeUnknown(f"200 with {code}")
        result = CompleteMultipartUploadResult(answer)  # type: ignore[arg-type]  # it reads `data`
        return str(result.etag).strip('"')


def find_uploads(wire: S3Client, root: str, prefix: str) -> Sequence[OpenUpload]:
    """Open uploads of keys that begin with `prefix`, by key; `root` is the store's own prefix."""
    found = {(open_upload.key, open_upload.upload_id): open_upload for open_upload in list_uploads(wire, root, prefix)}
    for key, started in sorted(_noted_keys(wire, root, prefix).items()):
        for upload in _uploads_of(wire, root, key) or [OpenUpload(key, "", started)]:
            found[upload.key, upload.upload_id] = upload
    return sorted(found.values(), key=lambda upload: (upload.key, upload.started))


def forget_notes(wire: S3Client, root: str, key: str) -> None:
    """Remove the notes of `key`, unless an upload of it still runs, and a note of that very name."""
    if not _uploads_of(wire, root, key):
        wire.send(
            "DELETE", root + UPLOAD_NOTES_PREFIX + key, accept=(404,)
        )  # first: MinIO lists nothing below an object
        for note in _notes(wire, root, f"{key}/~"):
            wire.send("DELETE", note.key, accept=(404,))


def _noted_keys(wire: S3Client, root: str, prefix: str) -> dict[str, float]:
    """Key and age by note; a name that our client would not give is the key itself, so that it can be removed, too."""
    names = {note.key.removeprefix(root + UPLOAD_NOTES_PREFIX): note.modified for note in _notes(wire, root, prefix)}
    return {name.rpartition("/~")[0] or name: modified for name, modified in names.items()}


def _notes(wire: S3Client, root: str, prefix: str) -> Sequence[Entry]:
    """The first thousand: those who may leave notes may leave a million, and each costs its reader requests."""
    return list_page(wire, root + UPLOAD_NOTES_PREFIX + prefix, "", 1000)


def _uploads_of(wire: S3Client, root: str, key: str) -> Sequence[OpenUpload]:
    return [upload for upload in list_uploads(wire, root, key) if upload.key == key]


def _manifest(part_etags: list[str]) -> bytes:
    root = ET.Element("CompleteMultipartUpload")
    for number, etag in enumerate(part_etags, 1):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = etag
    return bytes(ET.tostring(root))
