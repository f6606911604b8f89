"""A pipelines server of the routes a run needs, on loopback: answers as one of 2.17.0 was seen to, errs on demand."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

ROOT = "/apis/v2beta1"
PLACES = {"experiments": "experiment_id", "pipelines": "pipeline_id", "runs": "run_id"}


class Stub:
    """Its state, and what it does wrong next: `faults` holds (method, end of path, what)."""

    def __init__(self, work: Callable[[dict], str] | None = None):
        self.work = work
        """Takes a run to its end in a thread of its own; answers its state."""
        self.rows = {name: [] for name in (*PLACES, "pipeline_versions")}
        self.files, self.logs = {}, {}
        self.asked = []
        self.faults = deque()
        self.token = None
        self.ids = count(1)
        self.lock = threading.Lock()
        self.threads = []

    def fault(self, method: str, end: str, what: "int | str", times: int = 1) -> None:
        """`what`: a status before anything is done; "lost": done, but not answered; "html", "nested": no JSON."""
        self.faults.extend([(method, end, what)] * times)

    def take_fault(self, method: str, path: str) -> "int | str | None":
        with self.lock:
            for fault in self.faults:
                if fault[0] == method and path.endswith(fault[1]):
                    self.faults.remove(fault)
                    return fault[2]
        return None

    def add(self, kind: str, row: dict) -> dict:
        with self.lock:
            number = next(self.ids)
            row = {
                PLACES.get(kind, "pipeline_version_id"): f"id-{number}",
                "created_at": f"2026-01-01T00:{number:04}Z",
            } | row
            self.rows[kind].append(row)
        if kind == "runs":
            row |= {"state": "PENDING", "run_details": {"task_details": [{"task_id": "root"}]}}
            if self.work is not None:
                self.threads.append(threading.Thread(target=self._run, args=(row,), daemon=True))
                self.threads[-1].start()
        return row

    def _run(self, row: dict) -> None:
        row["state"] = "RUNNING"
        ended = "FAILED"
        try:
            ended = self.work(row)
        finally:
            row["state"] = "FAILED" if row["state"] == "CANCELING" else ended

    def terminate(self, row: dict) -> None:
        """Goes on to be CANCELING and ends as FAILED, as a real server was seen to."""
        row["state"] = "CANCELING"
        if self.work is None:
            timer = threading.Timer(0.3, row.update, [{"state": "FAILED"}])
            timer.daemon = True
            timer.start()


@contextmanager
def serving(stub: Stub):
    """Its URL while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Tests read `stub.asked`."""

        def do_GET(self):
            answer_to(self, stub, "GET")

        def do_POST(self):
            answer_to(self, stub, "POST")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def answer_to(handler: BaseHTTPRequestHandler, stub: Stub, method: str) -> None:
    parts = urlsplit(handler.path)
    path = parts.path.removeprefix(ROOT)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    stub.asked.append((method, path))
    fault = stub.take_fault(method, path)
    if stub.token and handler.headers.get("Authorization") != f"Bearer {stub.token}":
        say(handler, 401, {"message": "no such token"})
    elif isinstance(fault, int):
        say(handler, fault, {"message": "as asked"})
    elif fault in ("html", "nested"):
        send(handler, 200, b"<html>" if fault == "html" else b"[" * 100_000, "text/html")
    elif path.endswith("/log"):
        node = path.split("/")[-2]
        send(handler, 200 if node in stub.logs else 500, stub.logs.get(node, "gone").encode(), "text/plain")
    else:
        status, answer = do(stub, method, path, query, body)
        if fault == "lost":
            handler.close_connection = True
            handler.connection.close()
        else:
            say(handler, status, answer)


def do(stub: Stub, method: str, path: str, query: dict, body: bytes) -> tuple[int, dict]:
    place = path.strip("/").split("/")
    if path == "/healthz":
        return 200, {"multi_user": False}
    if path == "/pipelines/upload_version":
        row = stub.add("pipeline_versions", {"display_name": query["name"], "pipeline_id": query["pipelineid"]})
        row["tags"] = json.loads(query["tags"])
        stub.files[row["pipeline_version_id"]] = body
        return 200, row
    if len(place) == 1 and method == "POST":
        return 200, stub.add(place[0], json.loads(body))
    if len(place) == 1:
        return 200, page(stub, place[0], query)
    if place[-1] == "versions":
        return 200, page(stub, "pipeline_versions", query | {"pipeline_id": place[1]})
    return one(stub, place[0], place[1])


def one(stub: Stub, kind: str, name: str) -> tuple[int, dict]:
    name, _, verb = name.partition(":")
    row = next((row for row in stub.rows[kind] if row[PLACES[kind]] == name), None)
    if row is None:
        return 404, {"message": f"{kind} {name} not found"}
    if verb == "terminate":
        stub.terminate(row)
        return 200, {}
    return 200, row


def page(stub: Stub, kind: str, query: dict) -> dict:
    """Two rows at a time, so that pages are turned."""
    (wanted,) = json.loads(query["filter"])["predicates"]
    rows = [row for row in stub.rows[kind] if row["display_name"] == wanted["stringValue"]]
    rows = [
        row
        for row in rows
        if all(query.get(key, row.get(key)) == row.get(key) for key in ("experiment_id", "pipeline_id"))
    ]
    start = int(query.get("page_token", 0))
    following = {"next_page_token": str(start + 2)} if len(rows) > start + 2 else {}
    return {kind: rows[start : start + 2]} | following


def say(handler: BaseHTTPRequestHandler, status: int, answer: dict) -> None:
    send(handler, status, json.dumps(answer).encode(), "application/json")


def send(handler: BaseHTTPRequestHandler, status: int, data: bytes, kind: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
