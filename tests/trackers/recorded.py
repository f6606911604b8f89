"""Answers of a real MLflow server, written down once: what is played to the writer where there is no server.

`RECORD=1 pytest tests/trackers/test_recorded.py -m tools` writes them anew.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FILE = Path(__file__).with_name("recorded.json")
_VOLATILE = (
    (re.compile(r"[0-9a-f]{32}"), "0" * 32),
    (re.compile(r'("(?:creation_time|last_update_time)": ?)\d+'), r"\g<1>0"),
    (re.compile(r'("experiment_ids?": ?\[?")\d+'), r"\g<1>1"),
    (re.compile(r"mlflow-artifacts:/\d+"), "mlflow-artifacts:/1"),
    (re.compile(r"experiment_id=\d+"), "experiment_id=1"),
)


def steady(text: str) -> str:
    """`text` without what differs from server to server: ids, and times of its clock."""
    for pattern, wanted in _VOLATILE:
        text = pattern.sub(wanted, text)
    return text


class Player(ThreadingHTTPServer):
    """Answers with what was recorded, in order; a request that differs is kept in `differences`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.left, self.differences = json.loads(FILE.read_text()), []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> "Player":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Player

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        expected = self.server.left.pop(0) if self.server.left else {"request": None, "status": 500, "answer": "{}"}
        found = [self.command, self.path, body]
        if found != expected["request"]:
            self.server.differences.append((found, expected["request"]))
        self.send_response(expected["status"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(expected["answer"].encode())))
        self.end_headers()
        self.wfile.write(expected["answer"].encode())

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
