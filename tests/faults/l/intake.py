"""Starts, kills and starts again a service that takes deliveries in."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

from tests.ports import free_port

from gangline.serve.database.open import open_database

SECONDS = 60.0


class Intake:
    def __init__(self, folder, database=None):
        self.folder = folder
        self.database = database or str(folder / "gangline.db")
        self.port = free_port()
        self._process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hooks/hub"

    def start(self):
        root = Path(__file__).parents[3]
        arguments = [
            str(Path(__file__).with_name("intake_service.py")),
            str(self.folder),
            self.database,
            str(self.port),
        ]
        environ = {**os.environ, "PYTHONPATH": str(root)}
        self._process = subprocess.Popen([sys.executable, *arguments], env=environ, cwd=root)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None
            time.sleep(0.02)
        raise AssertionError("the service did not come up")

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)

    def orders(self):
        database = open_database(self.database)
        try:
            return database.orders.list(
                states=["queued", "driving", "parked", "done", "dropped"], projects=None, limit=100_000
            )
        finally:
            database.close()


@contextmanager
def intake(folder, database=None):
    service = Intake(folder, database)
    service.start()
    try:
        yield service
    finally:
        service.stop()
