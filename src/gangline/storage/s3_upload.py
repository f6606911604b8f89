"""Multipart uploads of an `S3Store`; bodies are read by minio's data types.

MinIO lists the open uploads of one key, not of a prefix. So each upload first leaves a note, a hidden empty object
below `.uploads~/<key>/`, and removes it at its end: whoever lists asks for the keys that have notes. A note whose
upload never began, or ended in a crash, is listed as an upload without id; aborting that removes the note.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from secrets import token_hex

from minio.datatypes import CompleteMultipartUploadResult, ListMultipartUploadsResult, parse_list_objects

from gangline.errors import StorageError
from gangline.storage.multipart import check_previous_part
from gangline.storage.protocol import Entry, Etag, OpenUpload
from gangline.storage.s3_names import NOTES, WORD
from gangline.storage.s3_refusal import error_code
from gangline.storage.s3_wire import Response, Unanswered, Wire
from gangline.storage.s3_write import landed


class S3Upload:
    def __init__(self, wire: Wire, prefix: str, key: str) -> None:
        self._wire = wire
        self._path = prefix + key
        self._word = token_hex(16)
        self._note = f"{prefix}{NOTES}{key}/~{self._word}"
        self._part_etags: list[str] = []
        self._last_size: int | None = None
        self._etag: Etag | None = None
        self._doubts = 0
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

    def _begin_once(self) -> Response:
        try:
            return self._wire.once("POST", self._path, query={"uploads": ""}, headers={WORD: self._word})
        except Unanswered as error:
            self._doubts += error.may_have_happened
            raise

    def _forget(self) -> None:
        """Remove the note, unless a second upload of ours may have begun: then it leads the collector there."""
        if not self._doubts:
            self._wire.send("DELETE", self._note, accept=(404,))

    def _complete_once(self) -> Etag:
        query = {"uploadId": self.upload_id}
        answer = self._wire.once("POST", self._path, query=query, body=_manifest(self._part_etags), accept=(404,))
        if answer.status == 404:  # gone: by an earlier try of ours, or aborted by another
            if etag := landed(self._wire, self._path, self._word):
                return etag
            raise self._wire.refused("POST", self._path, answer)
        if code := error_code(answer):  # S3 may answer 200 first and find the error later
            raise Unanswered(f"200 with {code}", may_have_happened=True)
        return str(CompleteMultipartUploadResult(answer).etag).strip('"')


def find_uploads(wire: Wire, root: str, prefix: str) -> Sequence[OpenUpload]:
    """Open uploads of keys that begin with `prefix`, by key; `root` is the store's own prefix."""
    found = {(each.key, each.upload_id): each for each in _uploads_below(wire, root, prefix)}
    for key, started in sorted(_noted_keys(wire, root, prefix).items()):
        for each in _uploads_of(wire, root, key) or [OpenUpload(key, "", started)]:
            found[each.key, each.upload_id] = each
    return sorted(found.values(), key=lambda each: (each.key, each.started))


def forget_notes(wire: Wire, root: str, key: str) -> None:
    """Remove the notes of `key`, unless an upload of it still runs."""
    if not _uploads_of(wire, root, key):
        for note in _notes(wire, root, f"{key}/~"):
            wire.send("DELETE", note.key, accept=(404,))


def _noted_keys(wire: Wire, root: str, prefix: str) -> dict[str, float]:
    return {
        note.key.removeprefix(root + NOTES).rpartition("/~")[0]: note.modified for note in _notes(wire, root, prefix)
    }


def _notes(wire: Wire, root: str, prefix: str) -> Sequence[Entry]:
    found: list[Entry] = []
    while page := list_page(wire, root + NOTES + prefix, found[-1].key if found else "", 1000):
        found += page
    return found


def list_page(wire: Wire, prefix: str, after: str, size: int) -> Sequence[Entry]:
    """One page of full paths below `prefix`."""
    query = {"list-type": "2", "prefix": prefix, "max-keys": str(size)} | ({"start-after": after} if after else {})
    objects, *_ = parse_list_objects(wire.send("GET", query=query))
    return [
        Entry(each.object_name, each.size, each.last_modified.timestamp())
        for each in objects
        if each.object_name is not None and each.size is not None and each.last_modified is not None
    ]


def _uploads_of(wire: Wire, root: str, key: str) -> Sequence[OpenUpload]:
    return [each for each in _uploads_below(wire, root, key) if each.key == key]


def _uploads_below(wire: Wire, root: str, prefix: str) -> Sequence[OpenUpload]:
    found: list[OpenUpload] = []
    query = {"uploads": "", "prefix": root + prefix, "max-uploads": "1000"}
    while True:
        page = ListMultipartUploadsResult(wire.send("GET", query=query))
        found += [
            OpenUpload(each.object_name.removeprefix(root), each.upload_id, each.initiated_time.timestamp())
            for each in page.uploads
            if each.object_name and each.upload_id and each.initiated_time
        ]
        if not page.is_truncated or not page.uploads:
            return found
        query |= {"key-marker": root + found[-1].key, "upload-id-marker": found[-1].upload_id}


def _manifest(part_etags: list[str]) -> bytes:
    root = ET.Element("CompleteMultipartUpload")
    for number, etag in enumerate(part_etags, 1):
        part = ET.SubElement(root, "Part")
        ET.SubElement(part, "PartNumber").text = str(number)
        ET.SubElement(part, "ETag").text = etag
    return bytes(ET.tostring(root))
