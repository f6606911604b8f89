"""A caller of a v2 server over HTTP: the golden sample, requests that must be refused, and turns in open loop.

Requests of a turn start at fixed times, whether or not earlier ones were answered, and the time of an answer counts
from the time at which its request was due: a caller that waits for answers would hide the queue.
"""

import http.client
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gangline.errors import IntegrityError
from gangline.infer.handler import DATATYPES
from gangline.infer.turns import PER_TURN

if TYPE_CHECKING:
    from numpy import ndarray

    Arrays = dict[str, ndarray]

ANSWER_SECONDS = 60.0
NOT_ANSWERED = 0
_OF_DATATYPE = {datatype: name for name, datatype in DATATYPES.items()}


class Caller:
    """Sends requests to one model of one server, on connections that stay open."""

    def __init__(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        self._address, self._path = (parts.hostname or "", parts.port or 80), f"/v2/models/{name}"
        self._own = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        for each in self._connections:
            each.close()

    def infer(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer; `NOT_ANSWERED`: the connection broke."""
        return self._request("POST", f"{self._path}/infer", body)

    def sample(self) -> "Arrays":
        """One sample of zeros, as the server describes its inputs; any size becomes 1."""
        import numpy as np

        status, body = self._request("GET", self._path, b"")
        if status != http.client.OK:
            raise IntegrityError(f"wanted the inputs of the model from {self._path}, found status {status}")
        return {
            str(each["name"]): np.zeros([max(1, int(size)) for size in each["shape"]], _OF_DATATYPE[each["datatype"]])
            for each in json.loads(body)["inputs"]
        }

    def announce(self, num_bytes: int) -> int:
        """Status of a request that announces `num_bytes` and sends none of them."""
        connection = http.client.HTTPConnection(*self._address, timeout=ANSWER_SECONDS)
        try:
            connection.putrequest("POST", f"{self._path}/infer")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(num_bytes))
            connection.endheaders()
            with connection.getresponse() as answer:
                return answer.status
        except (OSError, http.client.HTTPException):
            return NOT_ANSWERED
        finally:
            connection.close()

    def turn(self, body: bytes, pool: ThreadPoolExecutor, *, seconds: float) -> tuple[list[float], int]:
        """Times of `PER_TURN` answers to requests that are due each `seconds`, and how many were none."""
        start = time.monotonic()

        def send(at: float) -> tuple[float, int]:
            time.sleep(max(0.0, at - time.monotonic()))
            status, _ = self.infer(body)
            return time.monotonic() - at, status

        answers = list(pool.map(send, [start + number * seconds for number in range(PER_TURN)]))
        return [took for took, _ in answers], sum(status != http.client.OK for _, status in answers)

    def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection(*self._address, timeout=ANSWER_SECONDS)
            self._connections.append(connection)
        try:
            connection.request(method, path, body or None, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return NOT_ANSWERED, b""


def request_body(batch: "Mapping[str, ndarray]") -> bytes:
    """A request of the Open Inference Protocol v2, as JSON."""
    inputs = [
        {"name": name, "shape": list(each.shape), "datatype": DATATYPES[str(each.dtype)], "data": each.ravel().tolist()}
        for name, each in batch.items()
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
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"wanted outputs of the model, found {body[:120]!r}") from error
