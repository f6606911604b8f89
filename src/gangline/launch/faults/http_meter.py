"""Finds where requests begin in a client's bytes; knows of HTTP/1.1 only how long a request is."""

import re

_MAX_HEAD_BYTES = 65536
_METHOD = re.compile(rb"[A-Z]{1,16} ")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class RequestMeter:
    """For one connection; bytes that are no HTTP, or of unknown length, are one request to the end."""

    def __init__(self) -> None:
        self._head = b""
        self._body_left = 0
        self._is_opaque = False

    def starts(self, chunk: bytes) -> list[int]:
        """Offsets in `chunk`, the next bytes of the connection, at which a request begins."""
        found = []
        at = 0
        while at < len(chunk):
            if self._is_opaque:
                break
            if self._body_left:
                step = min(self._body_left, len(chunk) - at)
                self._body_left -= step
                at += step
                continue
            if not self._head:
                found.append(at)
            at += self._take_head(chunk[at:])
        return found

    def _take_head(self, rest: bytes) -> int:
        """Read `rest` up to the end of the head; returns how many bytes that took."""
        known = len(self._head)
        text = self._head + rest
        end = text.find(_END)
        if end < 0:
            self._head = text
            self._is_opaque = len(text) > _MAX_HEAD_BYTES or (len(text) > 16 and not _METHOD.match(text))
            return len(rest)
        head = text[: end + len(_END)]
        length = _LENGTH.search(head)
        self._head, self._body_left = b"", int(length[1]) if length else 0
        self._is_opaque = not _METHOD.match(head) or b"\r\ntransfer-encoding:" in head.lower()
        return len(head) - known
