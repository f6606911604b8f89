"""A small server of pages, under the service's own policy: what a browser asks for and sends is remembered."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from urllib.parse import parse_qs, urlsplit

from gangline.serve.pages import STATIC
from gangline.serve.web.responses import PAGE_POLICY


class Site:
    """Pages by path; a path may be given another page while a browser looks at it."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.asked: list[str] = []
        self.sent: list[tuple[str, dict[str, list[str]]]] = []
        self.events: Queue[str] = Queue()
        """What the stream of events says next, as it stands on the wire."""
        self.over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def say(self, kind: str, data: str) -> None:
        self.events.put(f"event: {kind}\ndata: {data}\n\n")

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.site.asked.append(self.path)
        if path.startswith("/static/"):
            media_type, body = STATIC[path.removeprefix("/static/")]
            self._answer(200, media_type, body)
        elif path.endswith("/events"):
            self._stream()
        elif path in self.site.pages:
            self._answer(200, "text/html; charset=utf-8", self.site.pages[path].encode())
        elif path == "/favicon.ico":  # of the bare answer to a form
            self._answer(204, "image/x-icon", b"")
        else:
            self._answer(404, "text/plain", b"not here")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.site.sent.append((self.path, parse_qs(body, keep_blank_values=True)))
        self._answer(200, "text/html; charset=utf-8", b"<!DOCTYPE html><title>sent</title>")

    def _answer(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", PAGE_POLICY)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b": here\n\n")
        while not self.site.over.is_set():
            try:
                self.wfile.write(self.site.events.get(timeout=0.05).encode())
            except Empty:
                continue
            except ConnectionError:
                return

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal of the tests."""
