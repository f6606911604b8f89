"""New lines of a file that grows, may not be there yet, and may be cut at its start to keep it small."""

from pathlib import Path


class LineTail:
    def __init__(self, path: Path, *, longest: int) -> None:
        """From the end that `path` has now; a line of more than `longest` bytes is cut into several."""
        self._path, self._longest = path, longest
        self._offset = self._size()

    def lines(self, *, most: int) -> list[str]:
        """Whole lines since last asked, of at most about `most` bytes; a torn last line waits for its end."""
        if self._size() < self._offset:
            self._offset = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(max(most, self._longest))
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        whole = data[: end or (len(data) if len(data) >= self._longest else 0)]
        self._offset += len(whole)
        return [part for line in whole.splitlines() for part in self._cut(line)]

    def skip_to_last(self, most: int) -> int:
        """Go on with the last `most` bytes where more are waiting; how many were left out."""
        size = self._size()
        left_out = size - max(most, self._longest) - self._offset
        if left_out <= 0:
            return 0
        with self._path.open("rb") as file:
            file.seek(self._offset + left_out)
            left_out += len(file.readline(self._longest))
        self._offset += left_out
        return left_out

    def _cut(self, line: bytes) -> list[str]:
        parts = range(0, max(len(line), 1), self._longest)
        return [line[start : start + self._longest].decode(errors="replace") for start in parts]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
