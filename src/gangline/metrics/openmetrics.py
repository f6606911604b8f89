"""Final values of ended runs as OpenMetrics text: what `metrics export` writes for a time-series database."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.metrics.exposition import SeriesCollector
from gangline.metrics.from_events import set_record_series
from gangline.metrics.record_values import Price, ended_at
from gangline.metrics.series_store import SeriesStore
from gangline.spec.record import Record

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample


Moment = tuple[float, SeriesStore]
"""Seconds since the epoch, and the values at that time; read before the next one is taken."""


def render_openmetrics(records: Iterable[Record], *, price: Price | None = None, moments: Iterable[Moment] = ()) -> str:
    """Text with one sample a series and run, at the time the run ended; `# EOF` last.

    Args:
        records: Of runs that ended.
        price: Of a GPU hour; None: no costs.
        moments: Of ranks while they trained; their gauges and counters are added to the final values.

    Raises:
        ConfigError: prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.openmetrics.exposition import generate_latest
    except ImportError as error:
        raise ConfigError("metrics need prometheus-client; pip install 'gangline[train]'") from error
    registry = CollectorRegistry(auto_describe=False)
    families = _families(chain(_ends(records, price), moments))
    registry.register(_Families(families))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # its module has no annotations
    return text.decode()


def _ends(records: Iterable[Record], price: Price | None) -> Iterator[Moment]:
    for record in sorted(records, key=lambda each: each.run.id):
        book = SeriesStore()
        set_record_series(book, record, price=price)
        yield ended_at(record), book


def _families(moments: Iterable[Moment]) -> "list[Metric]":
    """Each family once, its samples by series and time, as the format requires."""
    found: dict[str, Metric] = {}
    samples: dict[str, list[Sample]] = {}
    for time, book in moments:
        for family in SeriesCollector(book).collect():
            if family.type != "histogram":  # nothing of theirs is final
                found.setdefault(family.name, family)
                timed = (sample._replace(timestamp=time) for sample in family.samples)
                samples.setdefault(family.name, []).extend(timed)
    for name, family in found.items():
        family.samples = sorted(samples[name], key=lambda each: (sorted(each.labels.items()), each.timestamp))
    return list(found.values())


class _Families:
    """Families in the form that a prometheus-client registry collects."""

    def __init__(self, families: "list[Metric]") -> None:
        self._families = families

    def collect(self) -> "Iterator[Metric]":
        yield from self._families

    def describe(self) -> "Iterable[Metric]":
        return ()
