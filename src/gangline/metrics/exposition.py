"""Series for Prometheus, through prometheus-client: families of samples, no `_created` series."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.metrics.catalogue import Series
from gangline.metrics.series_store import Histogram, SeriesStore

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


class SeriesCollector:
    """Collector of a prometheus-client registry that reads a series store."""

    def __init__(self, book: SeriesStore) -> None:
        self._book = book

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for series, rows in self._book.values():
            kind = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
            family = kind(series.name, series.help, labels=series.labels)
            for key, value in sorted(rows.items()):
                family.add_metric(key, value)
            yield family
        for series, histograms in self._book.histograms():
            shown = HistogramMetricFamily(series.name, series.help, labels=series.labels)
            for key, histogram in sorted(histograms.items()):
                shown.add_metric(key, buckets=_cumulative(series, histogram), sum_value=histogram.total)
            yield shown

    def describe(self) -> "Iterable[Metric]":
        """Nothing: so the registry does not collect in order to know names."""
        return ()


def registry_of(book: SeriesStore) -> "CollectorRegistry":
    """Raises ConfigError where prometheus-client is not installed."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise ConfigError("metrics need prometheus-client; pip install 'gangline[train]'") from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SeriesCollector(book))
    return registry


def render_text(book: SeriesStore) -> tuple[str, bytes]:
    """Media type and text of all series; raises ConfigError where prometheus-client is not installed."""
    registry = registry_of(book)
    from prometheus_client import generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)


def _cumulative(series: Series, histogram: Histogram) -> list[tuple[str, float]]:
    total, rows = 0, []
    bounds = [*(repr(float(bound)) for bound in series.buckets), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        rows.append((bound, float(total)))
    return rows
