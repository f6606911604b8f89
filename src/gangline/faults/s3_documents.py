"""XML documents of an S3 server, as far as our own client reads them. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from xml.sax.saxutils import escape

from gangline.storage.objects.protocol import Entry, OpenUpload

Fields = dict[str, str]


def error(code: str, message: str) -> bytes:
    return _document("Error", _fields({"Code": code, "Message": message}))


def begun(upload_id: str) -> bytes:
    return _document("InitiateMultipartUploadResult", _fields({"UploadId": upload_id}))


def completed(etag: str) -> bytes:
    return _document("CompleteMultipartUploadResult", _fields({"ETag": f'"{etag}"'}))


def listing(bucket: str, entries: Iterable[Entry]) -> bytes:
    found = "".join(
        _element("Contents", {"Key": each.key, "Size": str(each.size_bytes), "LastModified": iso_time(each.modified)})
        for each in entries
    )
    return _document("ListBucketResult", _fields({"Name": bucket, "IsTruncated": "false"}) + found)


def uploads(bucket: str, entries: Iterable[OpenUpload]) -> bytes:
    found = "".join(
        _element("Upload", {"Key": each.key, "UploadId": each.upload_id, "Initiated": iso_time(each.started)})
        for each in entries
    )
    return _document("ListMultipartUploadsResult", _fields({"Bucket": bucket, "IsTruncated": "false"}) + found)


def iso_time(seconds: float) -> str:
    """`2026-11-22T10:00:00.000Z` of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_time(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(seconds), UTC), usegmt=True)


def _element(name: str, fields: Fields) -> str:
    return f"<{name}>{_fields(fields)}</{name}>"


def _fields(fields: Fields) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items())


def _document(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>{inside}</{name}>'.encode()
