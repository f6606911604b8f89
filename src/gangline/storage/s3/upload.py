"""Multipart uploads of an `S3Store`; bodies are read by minio's data types.

MinIO lists the open uploads of one key, not of a prefix. So each upload first leaves a note, a hidden empty object
below `.uploads~/<key>/`, and removes it at its end: a listing asks for the keys that have notes. A note whose
upload never began, or ended in a crash, is listed as an upload without id; aborting that removes the note.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from secrets import token_hex

from minio.datatypes import CompleteMultipartUploadResult

from gangline.errors import StorageError
from gangline.http.client import HttpResponse
from gangline.http.retry import OutcomeUnknown
from gangline.storage.objects.multipart import check_previous_part
from gangline.storage.objects.protocol import Entry, Etag, OpenUpload
from gangline.storage.s3.client import S3Client
from gangline.storage.s3.errors import error_code
from gangline.storage.s3.listing import list_page, list_uploads
from gangline.storage.s3.names import UPLOAD_NOTES_PREFIX, WRITE_ID_HEADER
from gangline.storage.s3.write import was_written


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
    found = {(each.key, each.upload_id): each for each in list_uploads(wire, root, prefix)}
    for key, started in sorted(_noted_keys(wire, root, prefix).items()):
        for each in _uploads_of(wire, root, key) or [OpenUpload(key, "", started)]:
            found[each.key, each.upload_id] = each
    return sorted(found.values(), key=lambda each: (each.key, each.started))


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
    names = {each.key.removeprefix(root + UPLOAD_NOTES_PREFIX): each.modified for each in _notes(wire, root, prefix)}
    return {name.rpartition("/~")[0] or name: modified for name, modified in names.items()}


def _notes(wire: S3Client, root: str, prefix: str) -> Sequence[Entry]:
    """The first thousand: those who may leave notes may leave a million, and each costs its reader requests."""
    return list_page(wire, root + UPLOAD_NOTES_PREFIX + prefix, "", 1000)


def _uploads_of(wire: S3Client, root: str, key: str) -> Sequence[OpenUpload]:
    return [each for each in list_uploads(wire, root, key) if each.key == key]


def _manifest(part_etags: list[str]) -> bytes:
    root = ET.Element("CompleteMultipartUpload")
    for number, etag in enumerate(part_etags, 1):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = etag
    return bytes(ET.tostring(root))
