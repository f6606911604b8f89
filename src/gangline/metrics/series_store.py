"""Current values of declared series: whatever is set, what is exported is finite, declared and bounded."""

import math
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gangline.metrics.catalogue import CATALOGUE, PREFIX, Series
from gangline.metrics.labels import MAX_SERIES, MAX_SERIES_PER_RUN, MAX_TEXT, values_of

Labels = tuple[str, ...]
"""Values in the order of the series' labels."""
Owner = tuple[str, str]
"""Whose series it is: the label that says so (run, project, or none), and its value."""


@dataclass(slots=True)
class Histogram:
    """Counts and sum of one histogram."""

    counts: list[int]
    """Observations of each bucket, infinity last; not cumulative."""
    total: float = 0.0


@dataclass
class SeriesStore:
    """Thread-safe; one writer and one scraper at least share it."""

    limit: int = MAX_SERIES_PER_RUN
    """Series of one run or project; a histogram counts as many as it has lines."""
    whole: int = MAX_SERIES
    """Series of all of them."""
    before_read: Callable[[], None] | None = None
    """Called before values are read, for a writer that defers them."""
    _values: dict[str, dict[Labels, float]] = field(default_factory=lambda: defaultdict(dict))
    _histograms: dict[str, dict[Labels, Histogram]] = field(default_factory=lambda: defaultdict(dict))
    _sizes: dict[Owner, int] = field(default_factory=dict)
    _size: int = 0
    _dropped: dict[str, int] = field(default_factory=dict)
    _lock: "threading.RLock" = field(default_factory=threading.RLock)

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere; None is ignored."""
        if value is None:
            return
        with self._lock:
            series, key = self._admit(name, value, labels)
            if series is not None and series.kind != "histogram":
                self._values[series.name][key] = float(value)

    def set_only(self, name: str, value: float, *, run: str, **labels: str) -> None:
        """Set a value, and remove those that the run has in this series with other labels."""
        with self._lock:
            rows, series = self._values[PREFIX + name], CATALOGUE[PREFIX + name]
            gone = _remove(rows, series.name, run)
            self._size -= gone
            self._sizes["run", run] = self._sizes.get(("run", run), 0) - gone
            self.set(name, value, run=run, **labels)  # within the lock: no scrape sees the series missing

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Count up; a negative amount is dropped."""
        with self._lock:
            series, key = self._admit(name, amount if amount >= 0 else math.nan, labels)
            if series is not None and series.kind == "counter":
                rows = self._values[series.name]
                total = rows.get(key, 0.0) + amount
                if math.isfinite(total):
                    rows[key] = total
                else:
                    self._drop("not_finite")

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One observation of a histogram."""
        with self._lock:
            series, key = self._admit(name, value, labels)
            if series is not None and series.kind == "histogram":
                rows = self._histograms[series.name]
                histogram = rows.setdefault(key, Histogram([0] * (len(series.buckets) + 1)))
                if math.isfinite(histogram.total + value):
                    histogram.counts[bisect_left(series.buckets, value)] += 1
                    histogram.total += value
                else:
                    self._drop("not_finite")

    def forget(self, run: str) -> None:
        """Remove every series of a run that has ended."""
        with self._lock:
            for name, rows in self._values.items():
                _remove(rows, name, run)
            for name, histograms in self._histograms.items():
                _remove(histograms, name, run)
            self._size -= self._sizes.pop(("run", run), 0)

    def values(self) -> Iterator[tuple[Series, dict[Labels, float]]]:
        """Gauges and counters in the catalogue's order, the count of dropped samples among them."""
        if self.before_read is not None:
            self.before_read()
        with self._lock:
            found = {name: dict(rows) for name, rows in self._values.items() if rows}
            dropped: dict[Labels, float] = {(reason,): float(count) for reason, count in self._dropped.items()}
        if dropped:
            found[PREFIX + "series_dropped_total"] = dropped
        yield from ((series, found[name]) for name, series in CATALOGUE.items() if name in found)

    def histograms(self) -> Iterator[tuple[Series, dict[Labels, Histogram]]]:
        """Histograms in the catalogue's order, as copies."""
        with self._lock:
            found = {
                name: {key: Histogram(list(row.counts), row.total) for key, row in rows.items()}
                for name, rows in self._histograms.items()
            }
        yield from ((series, found[name]) for name, series in CATALOGUE.items() if found.get(name))

    def _admit(self, name: str, value: float, labels: Mapping[str, str]) -> tuple[Series | None, Labels]:
        found = _declared(name, tuple(labels.items()))
        if found is None:
            return self._drop("undeclared")
        series, key = found
        if not math.isfinite(value):
            return self._drop("not_finite")
        return (series, key) if self._has_room(series, key) else self._drop("cap")

    def _has_room(self, series: Series, key: Labels) -> bool:
        of_kind: Mapping[str, dict[Labels, Any]] = self._histograms if series.kind == "histogram" else self._values
        rows = of_kind[series.name]
        if key in rows:
            return True
        label = next((each for each in ("run", "project") if each in series.labels), "")
        owner = label, key[series.labels.index(label)] if label else ""
        size = self._sizes.get(owner, 0) + series.lines
        if size > self.limit or self._size + series.lines > self.whole:
            return False
        self._sizes[owner] = size
        self._size += series.lines
        return True

    def _drop(self, reason: str) -> tuple[None, Labels]:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        return None, ()


@lru_cache(maxsize=256)
def _declared(name: str, labels: tuple[tuple[str, str], ...]) -> tuple[Series, Labels] | None:
    """The series and its key; None: not declared with these labels. Cached: a rank sets the same few each step."""
    series, given = CATALOGUE.get(PREFIX + name), dict(labels)
    if series is None or not given.keys() <= set(series.labels):
        return None
    key = tuple(_value(given.get(label, "")) for label in series.labels)
    fits = all(_is_declared(series, label, each) for label, each in zip(series.labels, key, strict=True))
    return (series, key) if fits else None


def _value(text: str) -> str:
    """`text` as a label value: one line, printable and cut."""
    cut = text[:MAX_TEXT]
    return cut if cut.isprintable() else "".join(each if each.isprintable() else " " for each in cut).strip()


def _is_declared(series: Series, label: str, value: str) -> bool:
    values = values_of(series.name.removeprefix(PREFIX), label)
    return not value or values is None or value in values


def _remove(rows: dict[Labels, Any], name: str, run: str) -> int:
    """Take the rows of `run` away; how many there were."""
    labels = CATALOGUE[name].labels
    place = labels.index("run") if "run" in labels else None
    mine = [key for key in rows if key[place] == run] if place is not None else []
    for key in mine:
        del rows[key]
    return len(mine)
