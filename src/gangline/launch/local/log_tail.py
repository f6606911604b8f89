"""Lines of a rank's log on this machine, of both its halves, with a line in the place of what is gone."""

from pathlib import Path

from gangline.spec.gang.log_halves import gone_line, older_from, older_half
from gangline.storage.folder.safe_paths import read_below


class LogTail:
    """Reads new lines of a log; what a rank has begun and not ended is a line once the rank has ended."""

    def __init__(self, log: Path, *, below: Path) -> None:
        """`below`: folder below which no link is followed."""
        self._log, self._below = log, below
        self._older: tuple[int, ...] | None = None
        """What names the content of the older half that was read; None: nothing was read yet."""
        self._position = 0
        self._begin = 0
        """Position of the first byte of the newer half."""
        self._rest = b""

    def lines(self, *, ended: bool) -> list[str]:
        """Lines since the last call; `ended`: nothing more is written."""
        is_first, is_rotated = self._older is None, self._take_older()
        if is_first or ended or not is_rotated:  # else the keeper may not have truncated the newer half yet
            self._take_newer()
        size = len(self._rest) if ended else self._rest.rfind(b"\n") + 1
        whole, self._rest = self._rest[:size], self._rest[size:]
        return whole.decode(errors="replace").splitlines()

    def _take_older(self) -> bool:
        """Take what is new in the older half; False: the log was not rotated since the last call."""
        name = self._name_of_older()
        if name == self._older:
            return False
        self._older = name
        gone, data, self._begin = older_from(read_below(self._below, older_half(self._log)) or b"", self._position)
        self._take(gone, data)
        return bool(name)

    def _name_of_older(self) -> tuple[int, ...]:
        try:
            found = older_half(self._log).lstat()
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _take_newer(self) -> None:
        size = self._log.lstat().st_size if self._log.exists() else 0
        if size < self._position - self._begin and self._name_of_older() == self._older:
            self._position = self._begin  # it was read before the keeper truncated it
        data = read_below(self._below, self._log, start=self._position - self._begin)
        self._take(0, data or b"")

    def _take(self, gone: int, data: bytes) -> None:
        if gone:
            self._rest += (b"\n" if self._rest else b"") + gone_line(gone)
        self._rest += data
        self._position += gone + len(data)
