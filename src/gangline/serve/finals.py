"""Last values of ended runs, for scrapers that came too late: the newest of each project, the others forgotten.

A run that ended keeps its series here and nowhere else. What they say is read from records, so a service that starts
anew shows what the one before it showed.
"""

import threading
from bisect import insort
from collections.abc import Iterable

from gangline.metrics.book import Book
from gangline.metrics.money import Price
from gangline.metrics.times import ended_at
from gangline.metrics.told import tell_end
from gangline.spec.marks import marks_of, was_cut_short
from gangline.spec.record import Record

NEWEST = 50
"""Runs of one project."""


class Finals:
    """Thread-safe."""

    def __init__(self, book: Book, *, price: Price | None = None, newest: int = NEWEST) -> None:
        self._book, self._price, self._newest = book, price, newest
        self._shown: dict[str, list[tuple[float, str]]] = {}
        """By project: (end, run), oldest first."""
        self._lock = threading.Lock()

    def rebuild(self, records: Iterable[Record]) -> None:
        """Show the newest of `records`; those that have not ended are passed over."""
        for record in records:
            self.show(record)

    def show(self, record: Record) -> None:
        """Show the end of a whole run that stands for its commit; an older one of its project goes for want of room."""
        if record.run.state != "ended" or was_cut_short(record) or marks_of(record):
            return  # boards and alerts hold what is shown here against the commits of the project
        run = record.run.id
        with self._lock:
            shown = self._shown.setdefault(record.run.project, [])
            shown[:] = [each for each in shown if each[1] != run]
            insort(shown, (ended_at(record), run))
            while len(shown) > self._newest:
                self._book.forget(shown.pop(0)[1])
            if any(each[1] == run for each in shown):
                tell_end(self._book, record, price=self._price)
