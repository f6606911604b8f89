"""Requests to the listener of another server: signed, over the first connection that a lossy network lets through."""

import errno
import hmac
import json
import os
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any, BinaryIO

from gangline.errors import CapacityError, error_for
from gangline.fabric.probe.packets import MOST_LINE_BYTES, Address

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
                each = begun.enter_context(socket.socket(family, kind))
                each.setblocking(False)
                if (code := each.connect_ex(target)) not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
                answered.register(each, selectors.EVENT_WRITE, each)
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
