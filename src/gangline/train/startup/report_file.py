"""File of lines of JSON that all processes of a rank append to, of bounded size. Standard library only."""

import os
from collections.abc import Mapping
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

    def write(self, line: Mapping[str, Any]) -> None:
        """Append `line`, with the number of this process."""
        import json  # most processes that only watch others write nothing

        data = json.dumps({"pid": os.getpid(), **line}).encode() + b"\n"
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
