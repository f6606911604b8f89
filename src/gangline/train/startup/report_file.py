"""File of lines of JSON that all processes of a rank append to, of bounded size. Standard library only."""

import os
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:  # modules that cost every program its start
    from collections.abc import Callable, Mapping
    from typing import Any

FULL_BYTES = 1 << 20
MOST_BYTES = FULL_BYTES - 4096
"""Size but for the lines that say that it is full."""


class ReportFile:
    """The file, for one process; each line is complete, however the process ends."""

    def __init__(self, path: str, full: bytes) -> None:
        """`full`: line that is written once in place of all that has no room."""
        self._path, self._full = path, full
        self._is_full = False

    def write(self, line: "Mapping[str, object]") -> None:
        """Append `line`, with the number of this process."""
        data = _encoded({"pid": os.getpid(), **line})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self._path, flags, 0o644)
        try:
            size = os.fstat(handle).st_size
            if size + len(data) <= MOST_BYTES:
                os.write(handle, data)
            elif size + len(self._full) <= FULL_BYTES and not self._is_full:
                self._is_full = True
                os.write(handle, self._full)
        finally:
            os.close(handle)


def _encoded(line: "Mapping[str, object]") -> bytes:
    """JSON of `line`; of plain values without the module, whose imports cost a program its start."""
    plain: dict[type, Callable[[Any], str]] = {str: encode_basestring_ascii, int: repr, float: repr}
    try:
        pairs = [f"{encode_basestring_ascii(name)}: {plain[type(value)](value)}" for name, value in line.items()]
    except KeyError:
        import json

        return json.dumps(line).encode() + b"\n"
    return f"{{{', '.join(pairs)}}}\n".encode()
