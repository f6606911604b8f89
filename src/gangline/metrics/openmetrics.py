"""Finals of ended runs as OpenMetrics text: what `metrics export` writes, for a time-series database to take in."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.metrics.book import Book
from gangline.metrics.exposition import BookCollector
from gangline.metrics.told import tell_record
from gangline.spec.record import Record

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def render_openmetrics(records: Iterable[Record]) -> str:
    """Text with one sample a series and run, at the time the run ended; `# EOF` last.

    Raises:
        ConfigError: prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.openmetrics.exposition import generate_latest
    except ImportError as error:
        raise ConfigError("metrics need prometheus-client; pip install 'gangline[train]'") from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Finals(list(records)))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # its module has no annotations
    return text.decode()


class _Finals:
    """Each run's samples carry its own time; a family stands once, however many runs are in it."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def collect(self) -> "Iterator[Metric]":
        families: dict[str, Metric] = {}
        for record in sorted(self._records, key=lambda each: each.run.id):
            book = Book()
            tell_record(book, record)
            for family in BookCollector(book).collect():
                whole = families.setdefault(family.name, family)
                timed = [sample._replace(timestamp=ended_at(record)) for sample in family.samples]
                whole.samples = [*(whole.samples if whole is not family else ()), *timed]
        yield from families.values()

    def describe(self) -> "Iterable[Metric]":
        return ()


def ended_at(record: Record) -> float:
    """Seconds since the epoch at which the last stage of the run ended, else when it was made."""
    times = [info.ended for info in record.stages.values() if info.ended]
    return datetime.fromisoformat(max(times, default=record.run.created)).timestamp()
