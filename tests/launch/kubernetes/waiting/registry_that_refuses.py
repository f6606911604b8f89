"""A registry that refuses in every way a container runtime must explain; the image's first word says which."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWERS = {
    "missing": (404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'),
    "forbidden": (403, b'{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}'),
    "unauthorized": (401, b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'),
    "toomany": (429, b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}'),
    "broken": (500, b"{}"),
}


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        word = self.path.removeprefix("/v2/").partition("/")[0]
        if word == "slow":
            time.sleep(600)
        status, body = ANSWERS.get(word, (200, b"{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  the server looks for this name

    def log_message(self, *_: object) -> None:
        """A registry of a test says nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Refusing).serve_forever()
