"""A caller of a v2 server over HTTP: the golden sample, requests that must be refused, and turns in open loop.

Requests of a turn start at fixed times, whether or not earlier ones were answered, and the time of an answer counts
from the time at which its request was due: a caller that waits for answers would hide the queue. Code of a commit
answers, so what it says is bounded before it is believed.
"""

import http.client
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING

from gangline.errors import IntegrityError
from gangline.infer.handler import DATATYPES
from gangline.infer.turns import PER_TURN
from gangline.train.model.golden import MAX_GOLDEN_BYTES

if TYPE_CHECKING:
    from numpy import ndarray

    Arrays = dict[str, ndarray]

OK, NOT_ANSWERED = 200, 0
ANSWER_SECONDS = 60.0
MOST_ANSWER_BYTES = 64 << 20
"""Longest answer that is read; a golden sample has at most `MAX_GOLDEN_BYTES`, which JSON makes longer."""
_CONNECT_SECONDS = 0.02
_OF_DATATYPE = {datatype: name for name, datatype in DATATYPES.items()}
_BROKEN = (OSError, http.client.HTTPException)


class Caller:
    """Sends requests to one model of one server of this machine, on a connection of each thread."""

    def __init__(self, port: int, name: str, token: str | None = None) -> None:
        self._port, self._path = port, f"/v2/models/{name}"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._own = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()

    def infer(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer; `NOT_ANSWERED`: the connection broke, or the answer is too long."""
        return self._request("POST", f"{self._path}/infer", body)

    def sample(self) -> "Arrays":
        """One sample of zeros, as the server describes its inputs; any size becomes 1.

        Raises:
            IntegrityError: It describes none, or some that are too large.
        """
        import numpy as np

        status, body = self._request("GET", self._path, b"")
        try:
            described = [
                (str(each["name"]), [max(1, int(size)) for size in each["shape"]], _OF_DATATYPE[each["datatype"]])
                for each in json.loads(body)["inputs"]
            ]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise IntegrityError(f"wanted the inputs of the model from {self._path}, found status {status}") from error
        if (size := sum(prod(shape) for _, shape, _ in described)) > MAX_GOLDEN_BYTES:
            raise IntegrityError(f"wanted inputs of at most {MAX_GOLDEN_BYTES} numbers, {self._path} names {size}")
        return {name: np.zeros(shape, dtype) for name, shape, dtype in described}

    def announce(self, num_bytes: int) -> int:
        """Status of a request that announces `num_bytes` and sends none of them."""
        connection = self._connection()
        try:
            connection.putrequest("POST", f"{self._path}/infer")
            for name, value in (self._headers | {"Content-Type": "application/json"}).items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(num_bytes))
            connection.endheaders()
            with connection.getresponse() as answer:
                return answer.status
        except _BROKEN:
            return NOT_ANSWERED
        finally:
            connection.close()

    def turn(self, body: bytes, pool: ThreadPoolExecutor, *, seconds: float) -> list[tuple[float, int, bytes]]:
        """Times, statuses and bodies of `PER_TURN` answers to requests that are due each `seconds`."""
        start = time.monotonic() + _CONNECT_SECONDS

        def send(at: float) -> tuple[float, int, bytes]:
            with suppress(*_BROKEN):
                self._connection().connect()  # servers close connections that were idle while the other was struck
            time.sleep(max(0.0, at - time.monotonic()))
            status, answer = self.infer(body)
            return time.monotonic() - at, status, answer

        return list(pool.map(send, [start + number * seconds for number in range(PER_TURN)]))

    def _connection(self) -> http.client.HTTPConnection:
        """Connection of this thread, closed."""
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
            self._connections.append(self._own.connection)
        connection: http.client.HTTPConnection = self._own.connection
        connection.close()
        return connection

    def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        connection = getattr(self._own, "connection", None) or self._connection()
        try:
            connection.request(method, path, body or None, self._headers | {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                if len(found := answer.read(MOST_ANSWER_BYTES + 1)) <= MOST_ANSWER_BYTES:
                    return answer.status, found
        except _BROKEN:
            pass
        connection.close()
        return NOT_ANSWERED, b""


def request_body(batch: "Mapping[str, ndarray]") -> bytes:
    """A request of the Open Inference Protocol v2, as JSON."""
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": DATATYPES[str(array.dtype)],
            "data": array.ravel().tolist(),
        }
        for name, array in batch.items()
    ]
    return json.dumps({"inputs": inputs}).encode()


def read_outputs(body: bytes) -> "Arrays":
    """Outputs of an answer; IntegrityError where it is none."""
    import numpy as np

    try:
        return {
            str(each["name"]): np.array(each["data"], _OF_DATATYPE[each["datatype"]]).reshape(each["shape"])
            for each in json.loads(body)["outputs"]
        }
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise IntegrityError(f"wanted outputs of the model, found {body[:120]!r}") from error
