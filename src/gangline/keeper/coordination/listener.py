"""Control port of the leader: accepts followers that prove the gang's key; unauthenticated connections cost little."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gangline.errors import CapacityError, ConfigError
from gangline.keeper.coordination import channel as wire
from gangline.keeper.coordination.channel import Channel, ChannelClosed

VISIT_SECONDS = 10.0
CROWDED_SECONDS = 1.0
"""The same, while others wait outside."""
MAX_VISITORS = 128


@dataclass
class _Visitor:
    connection: socket.socket
    nonce: str
    came: float
    buffer: bytearray = field(default_factory=bytearray)


class ControlListener:
    def __init__(self, host: str, port: int, *, gang: str, num_nodes: int, key: Callable[[], bytes]) -> None:
        """`key` is read at each visit: it may be renewed.

        Raises:
            CapacityError: The port is in use by somebody else.
        """
        self._gang, self._num_nodes, self._key = gang, num_nodes, key
        self._visitors: list[_Visitor] = []
        self.strangers = 0
        """Visitors that could not prove the key."""
        try:
            self._listener = socket.create_server((host, port), backlog=4096)
        except OSError as error:
            raise CapacityError(
                f"the keeper of node 0 wants {host or '*'}:{port} for the others: {error.strerror}; free the port or "
                "give another GANGLINE_CONTROL_PORT"
            ) from error
        self._listener.setblocking(False)

    def handles(self) -> list[int]:
        visitors = [each.connection.fileno() for each in self._visitors]
        return visitors if len(visitors) >= MAX_VISITORS else [self._listener.fileno(), *visitors]

    def pump(self) -> list[tuple[int, Channel]]:
        """Never waits; node ranks that proved themselves since last asked."""
        self._accept()
        come = []
        for visitor in list(self._visitors):
            try:
                found = self._hear(visitor)
            except (ChannelClosed, OSError, ConfigError):  # the last: the key cannot be read now
                self.strangers += 1
                self._reject(visitor)
                continue
            if found is not None:
                self._visitors.remove(visitor)
                come.append(found)
        return come

    def close(self) -> None:
        self._listener.close()
        for visitor in list(self._visitors):
            self._reject(visitor)

    def _accept(self) -> None:
        while self._has_room():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody there, or gone already
                return
            connection.setblocking(False)
            visitor = _Visitor(connection, wire.new_nonce(), time.monotonic())
            self._visitors.append(visitor)
            with suppress(OSError):
                connection.send(_line({"gangline": 1, "nonce": visitor.nonce}))

    def _has_room(self) -> bool:
        """The first of them came first."""
        if len(self._visitors) < MAX_VISITORS:
            return True
        if time.monotonic() - self._visitors[0].came < CROWDED_SECONDS:
            return False
        self._reject(self._visitors[0])
        return True

    def _hear(self, visitor: _Visitor) -> tuple[int, Channel] | None:
        ended = wire.read_available(visitor.connection, visitor.buffer, wire.GREETING_BYTES)
        line = wire.take_line(visitor.buffer)
        if line is not None:
            return self._check(visitor, wire.parse(line))
        if ended or len(visitor.buffer) >= wire.GREETING_BYTES or time.monotonic() - visitor.came > VISIT_SECONDS:
            raise ChannelClosed("said no greeting")
        return None

    def _check(self, visitor: _Visitor, greeting: dict[str, Any]) -> tuple[int, Channel]:
        node, nonce, key = greeting.get("node"), greeting.get("nonce"), self._key()
        if not isinstance(node, int) or not isinstance(nonce, str) or not 0 < node < self._num_nodes:
            raise ChannelClosed("is no node of this gang")
        nonces = (visitor.nonce, nonce)
        if not wire.is_proof(greeting.get("proof"), self._prove(key, "follower", node, nonces)):
            raise ChannelClosed("does not know the gang's key")
        visitor.connection.sendall(_line({"proof": self._prove(key, "leader", node, nonces)}))
        own = bytes.fromhex(self._prove(key, "connection", node, nonces))
        return node, Channel(visitor.connection, key=own, leads=True, rest=bytes(visitor.buffer))

    def _prove(self, key: bytes, role: str, node: int, nonces: tuple[str, str]) -> str:
        return wire.proof(key, role, gang=self._gang, node=node, nonces=nonces)

    def _reject(self, visitor: _Visitor) -> None:
        visitor.connection.close()
        self._visitors.remove(visitor)


def connect_to_leader(address: tuple[str, int], *, gang: str, node: int, key: bytes, seconds: float) -> Channel:
    """The follower's side of the door: connect to the leader, prove the key, be shown the same; waits up to `seconds`.

    Raises:
        Gone: Nobody answers there, or whoever does is not this gang's leader.
    """
    try:
        connection = socket.create_connection(address, timeout=seconds)
    except OSError as error:
        raise ChannelClosed(f"does not answer: {error.strerror or error}") from error
    try:
        return _authenticate(connection, gang=gang, node=node, key=key)
    except (OSError, ChannelClosed) as error:
        connection.close()
        raise ChannelClosed(f"broke off the greeting ({error}); have both the same key?") from error


def _authenticate(connection: socket.socket, *, gang: str, node: int, key: bytes) -> Channel:
    buffer = bytearray()
    theirs, own = _greeting(connection, buffer).get("nonce"), wire.new_nonce()
    if not isinstance(theirs, str):
        raise ChannelClosed("greets as no keeper does")
    nonces = (theirs, own)
    shown = wire.proof(key, "follower", gang=gang, node=node, nonces=nonces)
    connection.sendall(_line({"node": node, "nonce": own, "proof": shown}))
    if not wire.is_proof(
        _greeting(connection, buffer).get("proof"), wire.proof(key, "leader", gang=gang, node=node, nonces=nonces)
    ):
        raise ChannelClosed("cannot prove the gang's key")
    connection_key = wire.proof(key, "connection", gang=gang, node=node, nonces=nonces)
    return Channel(connection, key=bytes.fromhex(connection_key), leads=False, rest=bytes(buffer))


def _greeting(connection: socket.socket, buffer: bytearray) -> dict[str, Any]:
    while (line := wire.take_line(buffer)) is None:
        data = connection.recv(wire.GREETING_BYTES)
        if not data:
            raise ChannelClosed("closed the connection")
        buffer += data
        if len(buffer) > 2 * wire.GREETING_BYTES:
            raise ChannelClosed("talks too much")
    return wire.parse(line)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
