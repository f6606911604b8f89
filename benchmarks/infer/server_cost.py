"""IN2, IN3: the server of `gangline infer` against kserve's bare `Model`, with one model on one machine.

One client's median, in turns; throughput of 32 clients; then arrivals at a fixed rate, at the capacity and at ten times
of it: what was answered, what was refused, and the memory of the server. Needs `make infer`; where BENCH_LITSERVE names
an interpreter with litserve and torch, its throughput is compared in turns.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.infer.model_folder import code, write_model

import gangline
from gangline.line.gangs.infer_server import infer_python
from gangline.spec.config.site import Site
from gangline.storage.objects.code_layer import unpack

OUT = Path(".gangline/benchmarks/infer.json")
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
JSON = {"Content-Type": "application/json"}
PATH = "/v2/models/line/infer"
BARE = """
import sys
from pathlib import Path
folder, code, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
sys.argv[1:] = []
from kserve import InferOutput, InferResponse, Model, ModelServer
from gangline.train.model.published import open_published

class Bare(Model):
    def __init__(self, name):
        super().__init__(name)
        self.model, self.ready = open_published(folder, code), True
    def predict(self, payload, headers=None):
        found = self.model.predict({each.name: each.as_numpy() for each in payload.inputs})["output"]
        return InferResponse("", "line", [InferOutput("output", list(found.shape), "FP32", data=found)])

ModelServer(http_port=port, enable_grpc=False, enable_latency_logging=False).start([Bare("line")])
"""

RIVAL = """
import sys
from pathlib import Path
import litserve, numpy
from gangline.train.model.published import open_published

class Line(litserve.LitAPI):
    def setup(self, device):
        self.model = open_published(Path(sys.argv[1]), Path(sys.argv[2]))
    def decode_request(self, request):
        given = request["inputs"][0]
        return numpy.array(given["data"], "float32").reshape(given["shape"])
    def batch(self, inputs):
        return numpy.concatenate(inputs)
    def predict(self, x):
        return self.model.predict({"x": x})["output"]
    def unbatch(self, output):
        return [output[n : n + 1] for n in range(len(output))]
    def encode_response(self, output):
        found = {"name": "output", "datatype": "FP32", "shape": list(output.shape), "data": output.ravel().tolist()}
        return {"model_name": "line", "outputs": [found]}

if __name__ == "__main__":
    api = Line(max_batch_size=32, batch_timeout=0.002, api_path="/v2/models/line/infer")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[3]), generate_client_file=False, log_level="error")
"""
LITSERVE = os.environ.get("BENCH_LITSERVE")
"""Interpreter with litserve and torch; None: it is not compared."""


@contextmanager
def server(root: Path, *, bare: bool, batch: int, queue: int, rival: bool = False) -> Iterator[tuple[int, int]]:
    """(port, pid) of a server that answers; `rival`: litserve's."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    model, layer = root / "model", root / "code"
    python = infer_python(Site(), os.environ) or sys.executable
    (root / "packages").mkdir(exist_ok=True)
    if not (root / "packages" / "gangline").exists():
        (root / "packages" / "gangline").symlink_to(Path(str(gangline.__file__)).parent)
    ours = ["-m", "gangline.infer", model, "--code", layer, "--name", "line", "--version", "1", "--port", port,
            "--batch", batch, "--queue", queue]  # fmt: skip
    argv = ["-c", BARE, model, layer, port] if bare else ours
    if rival:
        (root / "rival.py").write_text(RIVAL)  # its worker imports it
        python, argv = str(LITSERVE), [root / "rival.py", model, layer, port]
    environ = {**os.environ, "PYTHONPATH": str(root / "packages"), "OMP_NUM_THREADS": "1"}
    with (root / "log").open("ab") as log:
        process = subprocess.Popen(
            [python, *map(str, argv)], env=environ, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + 120
        while ask(port)[0] != 200:
            assert process.poll() is None, (root / "log").read_text()[-2000:]
            assert time.monotonic() < until
            time.sleep(0.2)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers of a rival outlive it


def ask(port: int, connection: http.client.HTTPConnection | None = None) -> tuple[int, float]:
    """(status, seconds); status 0: no answer."""
    began = time.perf_counter()
    try:
        used = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        used.request("POST", PATH, BODY, JSON)
        answer = used.getresponse()
        answer.read()
    except OSError:
        return 0, time.perf_counter() - began
    if connection is None:
        used.close()
    return answer.status, time.perf_counter() - began


def one_client(port: int, count: int) -> float:
    """Median seconds of one client, after ten to warm up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times = [ask(port, connection)[1] for _ in range(count + 10)]
    return median(times[10:])


def throughput(port: int, clients: int, seconds: float) -> float:
    """Answers a second of `clients` that ask again at once."""
    until = time.monotonic() + seconds

    def client(_: int) -> int:
        connection, answered = http.client.HTTPConnection("127.0.0.1", port, timeout=60), 0
        while time.monotonic() < until:
            answered += ask(port, connection)[0] == 200
        return answered

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(client, range(clients))) / seconds


def open_loop(port: int, rate: float, seconds: float) -> Counter[int]:
    """Statuses of arrivals at a fixed rate, whatever was answered before."""
    found: Counter[int] = Counter()
    threads = []
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        threads.append(threading.Thread(target=lambda: found.update([ask(port)[0]])))
        threads[-1].start()
    for each in threads:
        each.join()
    return found


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main() -> int:
    seconds = float(os.environ.get("BENCH_SECONDS", "5"))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as place:
        root = Path(place)
        write_model(root / "model")
        unpack(code(), root / "code")
        medians: dict[bool, list[float]] = {True: [], False: []}
        rates = {}
        with (
            server(root, bare=True, batch=1, queue=64) as (bare, _),
            server(root, bare=False, batch=1, queue=64) as (ours, _),
        ):
            for is_bare in (True, False, False, True, True, False, False, True):
                medians[is_bare].append(one_client(bare if is_bare else ours, 200))
            rates["bare"] = throughput(bare, 32, seconds)
        with server(root, bare=False, batch=32, queue=64) as (batched, _):
            if LITSERVE is None:
                rates["batched"] = throughput(batched, 32, seconds)
            else:
                with server(root, bare=False, batch=32, queue=64, rival=True) as (rival, _):
                    for port in (batched, rival):  # the first answers of a server are slow
                        throughput(port, 32, 1.0)
                    ours, theirs = [], []
                    for letter in 2 * "ABBA":
                        found = ours if letter == "A" else theirs
                        found.append(throughput(batched if letter == "A" else rival, 32, seconds / 2))
                rates |= {"batched": median(ours), "litserve": median(theirs)}
                print("turns", ours, theirs)
        with server(root, bare=False, batch=1, queue=16) as (port, pid):
            capacity = throughput(port, 4, seconds)
            once = open_loop(port, capacity, seconds)
            after_once = memory(pid)
            tenfold = open_loop(port, 10 * capacity, min(seconds, 3000 / (10 * capacity)))
            after_tenfold = memory(pid)
    found = {
        "p50_ms": {"bare": median(medians[True]) * 1e3, "ours": median(medians[False]) * 1e3},
        "p50_ratio": median(medians[False]) / median(medians[True]),
        "per_second": rates, "capacity": capacity,
        "statuses": {"1x": dict(once), "10x": dict(tenfold)},
        "memory_ratio": after_tenfold / after_once,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found))
    return (
        0 if found["p50_ratio"] <= 1.3 and found["memory_ratio"] <= 1.1 and not set(once | tenfold) - {200, 429} else 1
    )


if __name__ == "__main__":
    sys.exit(main())
