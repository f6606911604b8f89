"""Values of declared series, as they stand now: whatever is told, what leaves is finite, declared and bounded.

Standard library alone. A sample that may not be exported is dropped and counted, it never raises: metrics are not worth
a training.
"""

import math
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.metrics.catalogue import CATALOGUE, CLOSED, CUT, MAX_SERIES_PER_RUN, MAX_TEXT, PREFIX, Series

Labels = tuple[str, ...]
"""Values in the order of the series' labels."""


@dataclass(slots=True)
class Histogram:
    counts: list[int]
    """By bucket, infinity last; not cumulative."""
    total: float = 0.0


@dataclass
class Book:
    """Thread-safe; one writer and one scraper at least share it."""

    limit: int = MAX_SERIES_PER_RUN
    """Series of one run; a histogram counts as many as it has lines."""
    _values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    _histograms: dict[str, dict[Labels, Histogram]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _dropped: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """The value of a gauge, or of a counter that is counted elsewhere; None is not known and says nothing."""
        if value is None:
            return
        with self._lock:
            series, key = self._admit(name, value, labels)
            if series is not None and series.kind != "histogram":
                self._values[series.name][key] = float(value)

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Count up; a negative amount is dropped."""
        with self._lock:
            series, key = self._admit(name, amount if amount >= 0 else math.nan, labels)
            if series is not None and series.kind == "counter":
                rows = self._values[series.name]
                rows[key] = rows.get(key, 0.0) + amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One observation of a histogram."""
        with self._lock:
            series, key = self._admit(name, value, labels)
            if series is not None and series.kind == "histogram":
                rows = self._histograms[series.name]
                histogram = rows.setdefault(key, Histogram([0] * (len(series.buckets) + 1)))
                histogram.counts[bisect_left(series.buckets, value)] += 1
                histogram.total += value

    def forget(self, run: str) -> None:
        """Remove every series of a run that has ended."""
        with self._lock:
            for name, rows in self._values.items():
                _remove(rows, name, run)
            for name, histograms in self._histograms.items():
                _remove(histograms, name, run)
            self._sizes.pop(run, None)

    def values(self) -> Iterator[tuple[Series, dict[Labels, float]]]:
        """Gauges and counters in the catalogue's order, the count of dropped samples among them."""
        with self._lock:
            found = {name: dict(rows) for name, rows in self._values.items() if rows}
            dropped: dict[Labels, float] = {(reason,): float(count) for reason, count in self._dropped.items()}
        if dropped:
            found[PREFIX + "series_dropped_total"] = dropped
        yield from ((series, found[name]) for name, series in CATALOGUE.items() if name in found)

    def histograms(self) -> Iterator[tuple[Series, dict[Labels, Histogram]]]:
        with self._lock:
            found = {
                name: {key: Histogram(list(each.counts), each.total) for key, each in rows.items()}
                for name, rows in self._histograms.items()
            }
        yield from ((series, found[name]) for name, series in CATALOGUE.items() if found.get(name))

    def _admit(self, name: str, value: float, labels: Mapping[str, str]) -> tuple[Series | None, Labels]:
        series = CATALOGUE.get(PREFIX + name)
        if series is None or not labels.keys() <= set(series.labels):
            return self._drop("undeclared")
        key = tuple(_value(label, labels.get(label, "")) for label in series.labels)
        if any(each and each not in CLOSED.get(label, (each,)) for label, each in zip(series.labels, key, strict=True)):
            return self._drop("undeclared")
        if not math.isfinite(value):
            return self._drop("not_finite")
        return (series, key) if self._has_room(series, key) else self._drop("cap")

    def _has_room(self, series: Series, key: Labels) -> bool:
        rows: Mapping[Labels, object]
        if series.kind == "histogram":
            rows, lines = self._histograms.setdefault(series.name, {}), len(series.buckets) + 3
        else:
            rows, lines = self._values.setdefault(series.name, {}), 1
        if key in rows:
            return True
        run = key[series.labels.index("run")] if "run" in series.labels else ""
        size = self._sizes.get(run, 0) + lines
        if size > self.limit:
            return False
        self._sizes[run] = size
        return True

    def _drop(self, reason: str) -> tuple[None, Labels]:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        return None, ()


def _value(label: str, text: str) -> str:
    """`text` as a label value: text of users is one line, printable and cut."""
    if label not in CUT:
        return text[:MAX_TEXT]
    return "".join(each if each.isprintable() else " " for each in text[:MAX_TEXT]).strip()


def _remove(rows: dict[Labels, Any], name: str, run: str) -> None:
    labels = CATALOGUE[name].labels
    if "run" in labels:
        place = labels.index("run")
        for key in [key for key in rows if key[place] == run]:
            del rows[key]
