"""Something to scrape: a text of ours behind a port, and a book in which every series of the catalogue has values."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gangline.metrics.catalogue import CATALOGUE, PREFIX
from gangline.metrics.exposition import render_text
from gangline.metrics.labels import values_of
from gangline.metrics.series_store import SeriesStore

COUNTED = {
    "run": "bytegpt-9f31c2a0-k7q2mx", "project": "bytegpt", "forge": "hub", "currency": "EUR", "metric": "eval_loss",
    "commit": "9f31c2a0" + "4b" * 16, "branch": "main", "line": "808080808080", "plan": "ddp-2", "target": "local",
    "tracker": "lab", "model": "bytegpt", "version": "1",
}  # fmt: skip


class Exposed:
    """Serves `text` at any path until it is closed: a text, or what makes one anew for each scrape.

    It may be replaced meanwhile; None is an answer of 503.
    """

    def __init__(self, text: str | Callable[[], str] | None) -> None:
        self.text = text
        exposed = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = exposed.text() if callable(exposed.text) else exposed.text
                body = (text or "").encode()
                self.send_response(200 if text is not None else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Exposed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def text_of(book: SeriesStore) -> str:
    return render_text(book)[1].decode()


def everything(*, book: SeriesStore | None = None, ranks: int = 2) -> SeriesStore:
    """Each series with each value of its closed labels: what no expression finds here it finds nowhere.

    Told to a book that has them its counters grow.
    """
    book = book or SeriesStore(limit=20_000)
    for series in CATALOGUE.values():
        name = series.name.removeprefix(PREFIX)
        for number, labels in enumerate(_combinations(name, series.labels, ranks), 1):
            if series.kind == "histogram":
                book.observe(name, series.buckets[1], **labels)
            elif series.kind == "counter":
                book.add(name, float(number), **labels)
            else:
                book.set(name, (number % 3 + 1) / (5 if name.endswith("_ratio") else 1), **labels)
    return book


def _combinations(name: str, labels: tuple[str, ...], ranks: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{}]
    for label in labels:
        closed = values_of(name, label)
        if label == "statistic" and "rank" in labels:
            continue
        values = [str(rank) for rank in range(ranks)] if label == "rank" else closed or (COUNTED[label],)
        found = [{**each, label: value} for each in found for value in values]
    return found
