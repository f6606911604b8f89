"""optuna-dashboard on the journal of a search: on this machine alone, and it changes nothing."""

from collections.abc import Callable, Iterable
from typing import Any

from gangline.errors import NotInstalledError, UsageError
from gangline.search.searches import search_prefix
from gangline.search.study import read_only_storage
from gangline.spec.search import SearchRequest
from gangline.storage.objects.protocol import ObjectStore

HOST = "127.0.0.1"
PACKAGE = "optuna-dashboard"


def serve_dashboard(
    store: ObjectStore, request: SearchRequest, *, port: int, on_start: Callable[[str], object]
) -> None:
    """Serve until interrupted; `on_start` gets the address.

    Raises:
        NotInstalledError: The dashboard is not in this environment.
        UsageError: The port is taken.
    """
    try:
        from optuna_dashboard import wsgi  # type: ignore[import-not-found]  # in no lock of ours
    except ImportError as error:
        works = f"pip install {PACKAGE}"
        raise NotInstalledError(f"gangline search dashboard: wanted {PACKAGE}, found none; {works}") from error
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: object) -> None:
            """Requests are no messages of a command."""

    class Threads(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    app = wsgi(read_only_storage(store, search_prefix(request.project, request.id)))

    def reading(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer what reads, under a name of this machine: another name may be a page elsewhere that resolves to it."""
        host = environ.get("HTTP_HOST", "").rpartition(":")[0]
        if host in (HOST, "localhost") and environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            body: Iterable[bytes] = app(environ, start_response)
            return body
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"This dashboard shows a search to this machine and changes nothing.\n"]

    try:
        server = make_server(HOST, port, reading, server_class=Threads, handler_class=Quiet)
    except OSError as error:
        raise UsageError(f"--port: wanted a free port, found {port}: {error.strerror}; 0 takes any") from error
    with server:
        on_start(f"http://{HOST}:{server.server_port}/dashboard/")
        server.serve_forever()
