"""Control port of the leader: accepts followers that prove the gang's key; other connections cost little."""

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

HANDSHAKE_SECONDS = 10.0
CROWDED_SECONDS = 1.0
"""The same while other connections wait to be accepted."""
MAX_PENDING = 128


@dataclass
class _Pending:
    connection: socket.socket
    nonce: str
    opened: float
    buffer: bytearray = field(default_factory=bytearray)


class ControlListener:
    """Accepts connections of followers and checks their proofs, many handshakes at a time."""

    def __init__(self, host: str, port: int, *, gang: str, num_nodes: int, key: Callable[[], bytes]) -> None:
        """`port`: 0 takes any free one. `key` is called for each handshake: the key may be renewed.

        Raises:
            CapacityError: The port is in use.
        """
        self._gang, self._num_nodes, self._key = gang, num_nodes, key
        self._pending: list[_Pending] = []
        self.num_rejected = 0
        """Connections that did not prove the key."""
        wanted = f"port {port}" if port else "any port"
        try:
            self._listener = socket.create_server((host, port), backlog=4096)
        except OSError as error:
            raise CapacityError(
                f"the keeper of node 0 cannot listen on {wanted} of {host or '*'} for the other nodes: "
                f"{error.strerror}; free the port or set another GANGLINE_CONTROL_PORT"
            ) from error
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])

    def handles(self) -> list[int]:
        pending = [each.connection.fileno() for each in self._pending]
        return pending if len(pending) >= MAX_PENDING else [self._listener.fileno(), *pending]

    def poll(self) -> list[tuple[int, Channel]]:
        """Node ranks and channels of followers that proved the key since the last call; never waits."""
        self._accept()
        accepted = []
        for pending in list(self._pending):
            try:
                found = self._read(pending)
            except (ChannelClosed, OSError, ConfigError):  # the last: the key cannot be read now
                self.num_rejected += 1
                self._reject(pending)
                continue
            if found is not None:
                self._pending.remove(pending)
                accepted.append(found)
        return accepted

    def close(self) -> None:
        self._listener.close()
        for pending in list(self._pending):
            self._reject(pending)

    def _accept(self) -> None:
        while self._has_room():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # none waits, or it is gone already
                return
            connection.setblocking(False)
            pending = _Pending(connection, wire.new_nonce(), time.monotonic())
            self._pending.append(pending)
            with suppress(OSError):
                connection.send(_line({"gangline": 1, "nonce": pending.nonce}))

    def _has_room(self) -> bool:
        """Room for another connection; the oldest one is closed after CROWDED_SECONDS."""
        if len(self._pending) < MAX_PENDING:
            return True
        if time.monotonic() - self._pending[0].opened < CROWDED_SECONDS:
            return False
        self._reject(self._pending[0])
        return True

    def _read(self, pending: _Pending) -> tuple[int, Channel] | None:
        ended = wire.read_available(pending.connection, pending.buffer, wire.GREETING_BYTES)
        line = wire.take_line(pending.buffer)
        if line is not None:
            return self._check(pending, wire.parse(line))
        if ended or len(pending.buffer) >= wire.GREETING_BYTES or time.monotonic() - pending.opened > HANDSHAKE_SECONDS:
            raise ChannelClosed("sent no greeting")
        return None

    def _check(self, pending: _Pending, greeting: dict[str, Any]) -> tuple[int, Channel]:
        node, nonce, key = greeting.get("node"), greeting.get("nonce"), self._key()
        if not isinstance(node, int) or not isinstance(nonce, str) or not 0 < node < self._num_nodes:
            raise ChannelClosed("is not a node of this gang")
        nonces = (pending.nonce, nonce)
        if not wire.is_proof(greeting.get("proof"), self._prove(key, "follower", node, nonces)):
            raise ChannelClosed("does not know the gang's key")
        pending.connection.sendall(_line({"proof": self._prove(key, "leader", node, nonces)}))
        own = bytes.fromhex(self._prove(key, "connection", node, nonces))
        return node, Channel(pending.connection, key=own, leads=True, rest=bytes(pending.buffer))

    def _prove(self, key: bytes, role: str, node: int, nonces: tuple[str, str]) -> str:
        return wire.proof(key, role, gang=self._gang, node=node, nonces=nonces)

    def _reject(self, pending: _Pending) -> None:
        pending.connection.close()
        self._pending.remove(pending)


def connect_to_leader(address: tuple[str, int], *, gang: str, node: int, key: bytes, seconds: float) -> Channel:
    """The follower's side: connect to the leader; each side proves the key to the other. Waits up to `seconds`.

    Raises:
        ChannelClosed: Nothing answers there, or something that is not the leader of this gang.
    """
    try:
        connection = socket.create_connection(address, timeout=seconds)
    except OSError as error:
        raise ChannelClosed(f"does not answer: {error.strerror or error}") from error
    try:
        return _authenticate(connection, gang=gang, node=node, key=key)
    except (OSError, ChannelClosed) as error:
        connection.close()
        raise ChannelClosed(f"broke off the greeting ({error}); do both have the same key?") from error


def _authenticate(connection: socket.socket, *, gang: str, node: int, key: bytes) -> Channel:
    buffer = bytearray()
    theirs, own = _greeting(connection, buffer).get("nonce"), wire.new_nonce()
    if not isinstance(theirs, str):
        raise ChannelClosed("is not a keeper")
    nonces = (theirs, own)
    own_proof = wire.proof(key, "follower", gang=gang, node=node, nonces=nonces)
    connection.sendall(_line({"node": node, "nonce": own, "proof": own_proof}))
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
            raise ChannelClosed("sent too long a greeting")
    return wire.parse(line)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
