"""Pages of a bucket's listings, read by minio's data types.

Writers below a prefix choose the names of objects, and XML cannot carry every name: listings are requested URL-encoded,
and a server that repeats a page is an error, not a loop.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from minio.datatypes import ListMultipartUploadsResult, parse_list_objects

from gangline.errors import StorageError
from gangline.http.client import HttpResponse
from gangline.storage.objects.protocol import Entry, OpenUpload
from gangline.storage.s3.client import S3Client

Page = TypeVar("Page")
_ENCODED = {"encoding-type": "url"}
_PAGE = 1000


def list_page(wire: S3Client, prefix: str, after: str, size: int) -> Sequence[Entry]:
    """One page of full paths below `prefix`, whatever their names."""
    query = {"list-type": "2", "prefix": prefix, "max-keys": str(size), **_ENCODED}
    answer = wire.send("GET", query=query | ({"start-after": after} if after else {}))
    objects, *_ = _read(wire, prefix, answer, parse_list_objects)
    found = [
        Entry(each.object_name, each.size, each.last_modified.timestamp())
        for each in objects
        if each.object_name is not None and each.size is not None and each.last_modified is not None
    ]
    if found and after and found[-1].key.encode(errors="replace") <= after.encode(errors="replace"):
        raise _repeats(wire, prefix)
    return found


def list_uploads(wire: S3Client, root: str, prefix: str) -> Sequence[OpenUpload]:
    """Open uploads below `root` whose key begins with `prefix`; MinIO lists those of the key `prefix` alone."""
    found: list[OpenUpload] = []
    query = {"uploads": "", "prefix": root + prefix, "max-uploads": str(_PAGE), **_ENCODED}
    while True:
        page = _read(wire, prefix, wire.send("GET", query=query), ListMultipartUploadsResult)
        listed = [
            OpenUpload(each.object_name.removeprefix(root), each.upload_id, each.initiated_time.timestamp())
            for each in page.uploads
            if each.object_name and each.upload_id and each.initiated_time
        ]
        if listed and listed[-1] in found:
            raise _repeats(wire, prefix)
        found += listed
        if not page.is_truncated or not listed:
            return found
        query |= {"key-marker": root + found[-1].key, "upload-id-marker": found[-1].upload_id}


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
