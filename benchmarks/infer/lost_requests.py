"""Requests that are lost over overload, swaps and a drain: python benchmarks/infer/lost_requests.py.

`BENCH_REQUESTS` (10,000) requests arrive at a fixed rate, twice what the server answers, while versions are swapped;
the server is drained while the last tenth arrives. A request counts as lost if its connection was made, its body was
sent and no answer came, unless the server had closed its port by then. Exit 1: one was lost, or one got 5xx.
Needs `make infer`.
"""

import http.client
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.infer.server_cost import BODY, JSON, PATH, memory, throughput
from tests.infer.model_folder import code, write_model

from gangline import procfs
from gangline.line.gangs.infer_server import ServedFolder, port_of, started_server
from gangline.spec.config.site import Site

OUT = Path(".gangline/benchmarks/infer-lost.json")


class Load:
    """Requests and what became of them."""

    def __init__(self, port: int) -> None:
        self.found: Counter[str] = Counter()
        self._port, self._threads = port, list[threading.Thread]()

    def arrive(self, count: int, rate: float) -> None:
        """Send `count` requests at `rate`, whatever was answered before."""
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            self._threads.append(threading.Thread(target=self._one))
            self._threads[-1].start()

    def wait(self) -> None:
        """Wait until each request has its answer, or none."""
        for each in self._threads:
            each.join()

    def _one(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.connect()
        except OSError:
            self.found["refused"] += 1
            return
        try:
            connection.request("POST", PATH, BODY, JSON)
            self.found[str(connection.getresponse().status)] += 1
        except (OSError, http.client.HTTPException):
            self.found["closed" if self._is_closed() else "lost"] += 1
        finally:
            connection.close()

    def _is_closed(self) -> bool:
        """Whether the port is closed: what the kernel had accepted for it was never the server's."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) != 0


def main() -> int:
    count = int(os.environ.get("BENCH_REQUESTS", "10000"))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as place:
        root = Path(place)
        first = ServedFolder(folder=write_model(root / "1", batch=8), code=code(), name="line", version=1)
        with started_server(first, root, site=Site(), environ=os.environ, options=("--port", "0")) as server:
            ready = server.report(120)
            assert ready is not None
            port = port_of(ready)
            rate = 2 * throughput(port, 8, 3.0)
            load, swapped = Load(port), []
            pid = max(server.pids(), key=procfs.peak_bytes)
            before = memory(pid)
            load.arrive(count * 2 // 10, rate)
            for version in range(2, 6):
                model = ServedFolder(folder=write_model(root / str(version), batch=8), code=code(), name="line",
                                     version=version)  # fmt: skip
                server.swap(model)
                load.arrive(count * 7 // 40, rate)
                swapped.append(server.report(120))
            after = memory(pid)
            late = threading.Thread(target=load.arrive, args=(count // 10, rate))
            late.start()
            time.sleep(count / 20 / rate)
            code_of_drain = server.drain()
            late.join()
            load.wait()
    found = {
        "rate": rate, "requests": sum(load.found.values()), "became": dict(load.found), "swapped": swapped,
        "drained": code_of_drain, "memory_ratio": after / before,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found))
    return 1 if load.found["lost"] or any(each.startswith("5") for each in load.found) else 0


if __name__ == "__main__":
    sys.exit(main())
