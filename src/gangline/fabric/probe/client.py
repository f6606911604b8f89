"""Requests to listeners: every server probes every other, or all are tested in pairs.

A request is signed, and goes over the first connection that a lossy network lets through.
"""

import errno
import hmac
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, BinaryIO, TypeVar

from gangline.errors import CapacityError, UsageError, error_for
from gangline.fabric.probe.packets import MOST_LINE_BYTES, MOST_TARGETS, Address, ProbeResult, read_results
from gangline.fabric.probe.pair_times import Pair

TIMEOUT_SECONDS = 5.0
CONNECT_SECONDS = 1.5
"""A listener that takes longer is away; long enough for a handshake that lost one packet, sent again after 1 s."""
ASK_CONNECTIONS = 8
"""Source ports that a request tries: where uplinks hash, one that is dead takes three of four connections of two."""
BLOCK_BYTES = 1 << 20
_NEXT_CONNECTION_SECONDS = 0.1
_MOST_ANSWER_BYTES = 1 << 24


def ask(
    address: Address, secret: bytes, request: Mapping[str, Any], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> dict[str, Any]:
    """The listener's answer to a request, over the first of several connections that a lossy network lets through.

    Raises:
        CapacityError: Nothing answers there.
        UsageError: It refuses the request; or the error that it met.
    """
    with _connected(address, secret, request, connections=ASK_CONNECTIONS) as (connection, lines):
        connection.settimeout(timeout_seconds)
        return _answer_of(address, lines.readline(_MOST_ANSWER_BYTES))


@contextmanager
def _connected(
    address: Address, secret: bytes, request: Mapping[str, Any], *, connections: int = 1
) -> Iterator[tuple[socket.socket, BinaryIO]]:
    """Connection to a listener to which a signed request was sent, and its reader of lines."""
    text = json.dumps(request).encode()
    try:
        with _first_connection(address, connections) as connection, connection.makefile("rb") as lines:
            connection.settimeout(TIMEOUT_SECONDS)
            nonce = lines.readline(MOST_LINE_BYTES).strip().decode("ascii", "replace")
            connection.sendall(sign(secret, nonce, text) + b" " + text + b"\n")
            yield connection, lines
    except OSError as error:
        found = error.strerror or str(error) or "no answer in time"
        raise CapacityError(
            f"wanted a listener at {address[0]}:{address[1]}, found: {found}; start one there with "
            "python -m gangline.fabric.probe"
        ) from error


def _first_connection(address: Address, count: int) -> socket.socket:
    """The first of `count` connections, begun one after another, that is there in time.

    Raises:
        OSError: The address refuses a connection, or lets none through.
    """
    family, kind, _, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    until = time.monotonic() + CONNECT_SECONDS
    with ExitStack() as begun, selectors.DefaultSelector() as answered:
        while (left := until - time.monotonic()) > 0:
            if len(answered.get_map()) < count:
                sock = begun.enter_context(socket.socket(family, kind))
                sock.setblocking(False)
                if (code := sock.connect_ex(target)) not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
                answered.register(sock, selectors.EVENT_WRITE, sock)
                left = min(left, _NEXT_CONNECTION_SECONDS)
            for key, _ in answered.select(timeout=left):
                if code := key.data.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(code, os.strerror(code))
                return socket.socket(fileno=os.dup(key.fd))
    raise TimeoutError("no answer in time")


def _answer_of(address: Address, line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        raise CapacityError(f"{address[0]}:{address[1]}: wanted a listener's answer, found {line[:40]!r}") from None
    if not isinstance(answer, dict):
        raise CapacityError(f"{address[0]}:{address[1]}: wanted a listener's answer, found {line[:40]!r}")
    if "error" in answer:
        raise error_for(int(answer.get("exit", 2)))(f"{address[0]}:{address[1]}: {answer['error']}")
    return answer


def send(address: Address, secret: bytes, *, seconds: float) -> float:
    """Bytes per second that the listener received over one TCP connection; as it counts, so nothing in flight counts.

    Raises:
        CapacityError: It does not answer, or stopped receiving.
    """
    with _connected(address, secret, {"do": "receive"}) as (connection, lines):
        if (line := lines.readline(MOST_LINE_BYTES)) != b"go\n":
            _answer_of(address, line)
        block, until = bytes(BLOCK_BYTES), time.monotonic() + seconds
        while time.monotonic() < until:
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
        answer = _answer_of(address, lines.readline(MOST_LINE_BYTES))
    return float(answer["size_bytes"]) / max(float(answer["seconds"]), 1e-9)


def sign(secret: bytes, nonce: str, text: bytes) -> bytes:
    """Signature of a request by who knows the secret; the nonce is the listener's, so that none is sent twice."""
    return hmac.new(secret, nonce.encode() + text, sha256).hexdigest().encode()


MOST_AT_ONCE = 256
"""Listeners that are asked at the same time."""
K = TypeVar("K")
T = TypeVar("T")


@dataclass(slots=True)
class Listeners:
    """The listeners of a set of servers, as one who knows their secret asks them."""

    addresses: Mapping[str, Address]
    """Address of each server, by its name."""
    secret: bytes = b""
    unreachable: dict[str, str] = field(default_factory=dict)
    """Why, by server whose listener gave no answer."""

    def probe_all(self, *, seconds: float, flows: int) -> dict[Pair, ProbeResult]:
        """Let every server probe every other for `seconds`, all at the same time.

        Raises:
            UsageError: There are fewer than two servers, or more than may probe each other.
            CapacityError: No listener answers.
        """
        names = list(self.addresses)
        if not 2 <= len(names) <= MOST_TARGETS + 1:
            raise UsageError(
                f"wanted 2 to {MOST_TARGETS + 1} servers that probe each other, found {len(names)}; --preflight tests "
                "any number in pairs"
            )
        found, self.unreachable = _answers(names, partial(self._probe, seconds=seconds, flows=flows))
        if not found:
            raise CapacityError(next(iter(self.unreachable.values())))
        return {(source, target): result for source, row in found.items() for target, result in row.items()}

    def bytes_per_second(self, pairs: Sequence[Pair], *, seconds: float) -> dict[Pair, float]:
        """Speed of one TCP connection from sender to receiver, disjoint pairs at the same time; 0 without an answer."""
        found, _ = _answers(pairs, partial(self._send, seconds=seconds))
        return {pair: found.get(pair, 0.0) for pair in pairs}

    def _probe(self, source: str, *, seconds: float, flows: int) -> dict[str, ProbeResult]:
        """What `source` finds of each other server."""
        others = [name for name in self.addresses if name != source]
        targets = [_text(self.addresses[name]) for name in others]
        request = {"do": "probe", "targets": targets, "seconds": seconds, "flows": flows}
        answer = ask(self.addresses[source], self.secret, request, timeout_seconds=2 * seconds + TIMEOUT_SECONDS)
        return dict(zip(others, read_results(answer["results"]), strict=True))

    def _send(self, pair: Pair, *, seconds: float) -> float:
        source, target = pair
        request = {"do": "send", "target": _text(self.addresses[target]), "seconds": seconds}
        answer = ask(self.addresses[source], self.secret, request, timeout_seconds=2 * seconds + TIMEOUT_SECONDS)
        return float(answer["bytes_per_second"])


def _answers(keys: Sequence[K], question: Callable[[K], T]) -> tuple[dict[K, T], dict[K, str]]:
    """Answers by key, and why there is none."""
    found: dict[K, T] = {}
    problems: dict[K, str] = {}
    with ThreadPoolExecutor(min(len(keys), MOST_AT_ONCE)) as pool:
        for key, future in [(key, pool.submit(question, key)) for key in keys]:
            try:
                found[key] = future.result()
            except CapacityError as error:
                problems[key] = str(error)
    return found, problems


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
