"""A server with the command line and the answers of `python -m gangline.infer`, without kserve: y = 2 x.

`mode.json` of its folder says how it differs: `seconds` of an answer, `shift` of y, `malformed` and `oversized` status,
`exit` instead of an answer, `silent` about being ready; and how it cheats: `garbage_after` that many answers,
`fork_bytes` in a grandchild that ends soon, `hides_bytes` in memory whose peak it resets, `boasts` on stdout, `drips`.
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

DEVICE = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    mode: ClassVar[dict] = {}
    most = 0
    answered = 0
    token = None

    def do_GET(self):
        self.reply(200, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]})

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        assert self.headers["Authorization"] == f"Bearer {self.token}"
        if length > self.most:
            self.close_connection = True
            return self.reply(self.mode.get("oversized", 413), {"error": "too large"})
        try:
            given = json.loads(self.rfile.read(length))["inputs"][0]
        except ValueError:
            return self.reply(self.mode.get("malformed", 400), {"error": "no JSON"})
        with DEVICE:
            time.sleep(self.mode.get("seconds", 0.0))
        if self.mode.get("drips"):
            time.sleep(3600)
        Handler.answered += 1
        if self.answered == 30:
            cheat(self.mode)
        if self.answered > self.mode.get("garbage_after", 1e9):
            return self.reply(200, {"outputs": []})
        if given["name"] not in self.mode.get("takes", ["x"]):
            return self.reply(400, {"error": "other inputs"})
        y = [2 * each + self.mode.get("shift", 0.0) for each in given["data"]]
        return self.reply(200, {"outputs": [{**given, "name": "y", "data": y}]})

    def reply(self, status, words):
        body = json.dumps(words).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


def cheat(mode):
    """Use memory where it might not be looked for."""
    if mode.get("fork_bytes") and os.fork() == 0:
        if os.fork() == 0:
            kept = bytearray(mode["fork_bytes"])
            time.sleep(0.3)
            del kept
        os._exit(0)
    if mode.get("hides_bytes"):
        kept = bytearray(mode["hides_bytes"])
        time.sleep(0.3)
        del kept
        Path("/proc/self/clear_refs").write_text("5")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("--name", "--version", "--port", "--max-request-bytes"):
        parser.add_argument(name)
    options = parser.parse_args()
    Handler.mode = mode = json.loads((options.folder / "mode.json").read_text())
    Handler.token = json.loads(sys.stdin.readline())["token"]
    Handler.most = int(options.max_request_bytes)
    if "exit" in mode:
        sys.stderr.write("Traceback\nthe model cannot be opened\n")
        sys.exit(mode["exit"])
    if mode.get("silent"):
        time.sleep(60)
    ThreadingHTTPServer.daemon_threads = True
    server = ThreadingHTTPServer(("127.0.0.1", int(options.port)), Handler)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    ready = {"ready": f"http://127.0.0.1:{server.server_port}"}
    sys.stdout.write(json.dumps(ready | mode.get("boasts", {})) + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
