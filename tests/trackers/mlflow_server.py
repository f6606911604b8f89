"""A real MLflow server on loopback: SQLite, without jobs and telemetry; and, before it, a door that wants a token."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import urllib3
from tests.ports import free_port
from tests.tools.__main__ import TOOLS, tools_folder

_START_SECONDS = 240
_DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
_HOP = ("transfer-encoding", "connection", "content-length", "date", "server")


@dataclass
class MlflowServer:
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "MlflowServer":
        """Skips where `make tools` has not built it."""
        tool = next(tool for tool in TOOLS if tool.name == "mlflow")
        if not tool.is_there(tools_folder()):
            pytest.skip(f"mlflow is not in {tools_folder()}: make tools builds it")
        command = [
            tool.program(tools_folder()), "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
            "--artifacts-destination", self.folder / "files",
        ]  # fmt: skip
        environ = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_DIES_WITH_US, *map(str, command)], env=environ, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _START_SECONDS
        pool = urllib3.PoolManager(retries=False, timeout=2)
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                if pool.request("GET", f"{self.url}/health").status == 200:
                    return self
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"MLflow did not answer on {self.url}:\n{(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Ends the server and the workers that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class Door(ThreadingHTTPServer):
    """A proxy that lets requests with its token through, as those before real servers do; `requests` has all."""

    daemon_threads = True

    def __init__(self, server: str, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.token, self.requests = server, token, []
        self.exchanges, self._lost = [], 0
        self.strikes = {}
        """What is called once the request of that number was carried out, before its answer."""
        self.pool = urllib3.PoolManager(retries=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def lose_answer(self, number: int) -> None:
        """Carry out the request of this number, counted from now, and close its connection without an answer."""
        self._lost = len(self.requests) + number

    @property
    def loses(self) -> bool:
        return len(self.requests) == self._lost

    def __enter__(self) -> "Door":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Door

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path, body))
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            status, headers, data = 401, {"Content-Type": "text/html"}, b"<html>401 Authorization Required</html>"
        else:
            answer = self.server.pool.request(
                self.command, self.server.upstream + self.path, body=body or None,
                headers={name: text for name, text in self.headers.items() if name != "Host"},
            )  # fmt: skip
            status, headers, data = answer.status, dict(answer.headers), answer.data
        if (strike := self.server.strikes.pop(len(self.server.requests), None)) is not None:
            strike()
        if self.server.loses:
            self.close_connection = True
            return
        self.server.exchanges.append((self.command, self.path, body, status, data))
        self.send_response(status)
        for name, text in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
