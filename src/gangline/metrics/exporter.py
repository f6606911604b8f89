"""HTTP endpoint that Prometheus scrapes. A port in use or a missing library costs the metrics, never the run."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gangline.errors import ConfigError
from gangline.metrics.exposition import registry_of
from gangline.metrics.from_events import RankSeries, set_record_series
from gangline.metrics.labels import MAX_RANKS
from gangline.metrics.record_values import Price
from gangline.metrics.series_store import SeriesStore
from gangline.spec.record import Record

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

LOOPBACK = "127.0.0.1"


class Endpoint:
    """One port that serves the values of a series store."""

    def __init__(self, book: SeriesStore, port: int, host: str = LOOPBACK) -> None:
        """Serve at once, from a daemon thread.

        Args:
            book: Read at each scrape.
            port: 0 takes a free one.
            host: An address of this machine; loopback unless the site says otherwise.
        """
        self.book = book
        self.port = port
        self.problem: str | None = None
        """Why nothing is served; None while it is."""
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None
        try:
            self._start(book, host)
        except (ConfigError, OSError) as error:
            self.problem = f"metrics are not served on {host}:{port}: {error}"

    def _start(self, book: SeriesStore, host: str) -> None:
        registry = registry_of(book)
        from prometheus_client import start_http_server

        self._server, self._thread = start_http_server(self.port, addr=host, registry=registry)
        self.port = self._server.server_port

    def close(self) -> None:
        """Stop serving; the port is free when this returns."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


class RankExporter(Endpoint):
    """Metrics of one rank, from the events it writes."""

    def __init__(
        self,
        run: str,
        rank: int,
        port: int,
        *,
        world_size: int = 1,
        steps: int | None = None,
        trains: bool = True,
        host: str = LOOPBACK,
    ) -> None:
        """Serve at once.

        Args:
            run: Its id.
            rank: Of the gang.
            port: 0 takes a free one.
            world_size: Above 256 no rank has series of its own.
            steps: Of the plan.
            trains: False in a gang that evaluates a model: steps it takes are not progress of the run.
            host: An address of this machine.
        """
        book = SeriesStore()
        self._series = RankSeries(run, rank, book, by_rank=world_size <= MAX_RANKS, trains=trains)
        if self._series.is_reporting:
            book.set("train_steps", steps, run=run)
            for name in ("train_nonfinite_steps_total", "checkpoint_failures_total"):
                book.add(name, 0.0, run=run)  # so that the first one counts as an increase
        super().__init__(book, port, host)

    def observe(self, event: Mapping[str, Any]) -> None:
        """Take in one event of `out/ranks/<rank>.jsonl`; cheap, and does not raise for malformed events."""
        self._series.observe(event)


class DriverExporter(Endpoint):
    """Metrics of the runs that this process drives, from their records."""

    def __init__(self, port: int, *, price: Price | None = None) -> None:
        self._price = price
        super().__init__(SeriesStore(), port)

    def show(self, record: Record) -> None:
        """Set all series of a record; call it again after each change."""
        set_record_series(self.book, record, price=self._price)

    def expect(self, run: str, seconds: float | None) -> None:
        """Forecast of what is left of the training."""
        self.book.set("run_eta_seconds", seconds, run=run)

    def joined(self, run: str, ranks: int) -> None:
        """Ranks of the gang that have met."""
        self.book.set("gang_ranks", ranks, run=run, state="joined")

    def waiting(self, run: str, *, waits: bool) -> None:
        """Whether the gang waits for devices."""
        self.book.set("run_waiting", float(waits), run=run)

    def restarted(self, run: str, times: int) -> None:
        """Restarts of the gang so far."""
        self.book.set("gang_restarts_total", times, run=run)

    def tracker_failed(self, run: str, tracker: str) -> None:
        """Count a call that a tracker did not take."""
        self.book.add("tracker_failures_total", run=run, tracker=tracker)

    def used(self, run: str, ratio: float | None) -> None:
        """Share of what the GPUs can do that the last step used."""
        self.book.set("train_mfu_ratio", ratio, run=run)
