"""Authenticated messages between two keepers over TCP: one JSON object per line, each with a MAC of the gang's key.

Both sides first prove the key, each over a nonce of the other, and derive the key of the connection from both nonces.
The MAC covers direction and number of a line, so no line can be forged, repeated, left out or reflected. Lines are
authenticated, not encrypted.

    leader   -> {"gangline": 1, "nonce": N}
    follower -> {"node": 3, "nonce": M, "proof": P}
    leader   -> {"proof": Q}
    both        <seal, 32 hex digits> <JSON>
"""

import hmac
import json
import secrets
import socket
from typing import Any

GREETING_BYTES = 1024
"""Longest line before the other side has proved the key."""
MESSAGE_BYTES = 1 << 20
SEND_SECONDS = 5.0
"""A peer that accepts nothing for so long counts as lost."""
_SEAL_DIGITS = 32


class ChannelClosed(Exception):
    """The other side is gone, or sent what no keeper of this gang sends."""


def new_nonce() -> str:
    """A random number for one handshake, as hex digits."""
    return secrets.token_hex(16)


def proof(key: bytes, role: str, *, gang: str, node: int, nonces: tuple[str, str]) -> str:
    """Proof that `role` ("leader", "follower") knows `key`; `nonces`: the leader's, then the follower's."""
    text = json.dumps(["gangline keepers 1", role, gang, node, *nonces])
    return hmac.digest(key, text.encode(), "sha256").hex()


def is_proof(found: object, wanted: str) -> bool:
    """Compare a received proof, which may be any JSON value, in constant time."""
    return isinstance(found, str) and hmac.compare_digest(found.encode(), wanted.encode())


class Channel:
    """One authenticated connection between keepers; it owns the socket."""

    def __init__(self, connection: socket.socket, *, key: bytes, leads: bool, rest: bytes = b"") -> None:
        """`key`: of this connection. `leads`: this is the leader's side. `rest`: bytes read beyond the greeting."""
        connection.setblocking(False)
        self._socket, self._key = connection, key
        self._outward, self._inward = (b">", b"<") if leads else (b"<", b">")
        self._sent = self._received = 0
        self._buffer = bytearray(rest)

    def fileno(self) -> int:
        """File descriptor of the socket, for `select` and `epoll`."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Raises `ChannelClosed`."""
        body = json.dumps(message, separators=(",", ":")).encode()
        line = self._seal(self._outward, self._sent, body) + b" " + body + b"\n"
        self._sent += 1
        try:
            self._socket.settimeout(SEND_SECONDS)
            self._socket.sendall(line)
            self._socket.setblocking(False)
        except OSError as error:
            raise ChannelClosed(f"does not accept messages: {error}") from error

    def receive(self) -> list[dict[str, Any]]:
        """Messages that have arrived; never waits. Raises `ChannelClosed` after all earlier messages were returned."""
        ended = read_available(self._socket, self._buffer, MESSAGE_BYTES + _SEAL_DIGITS + 2)
        messages = []
        while (line := take_line(self._buffer)) is not None:
            messages.append(self._open(line))
        if ended and not messages:
            raise ChannelClosed("closed the connection")
        if len(self._buffer) > MESSAGE_BYTES + _SEAL_DIGITS:
            raise ChannelClosed(f"sent a line of more than {MESSAGE_BYTES} bytes")
        return messages

    def close(self) -> None:
        self._socket.close()

    def _open(self, line: bytes) -> dict[str, Any]:
        seal, _, body = line.partition(b" ")
        if not hmac.compare_digest(seal, self._seal(self._inward, self._received, body)):
            raise ChannelClosed("sent a line without the gang's seal")
        self._received += 1
        return parse(body)

    def _seal(self, direction: bytes, number: int, body: bytes) -> bytes:
        whole = direction + number.to_bytes(8, "big") + body
        return hmac.digest(self._key, whole, "sha256").hex()[:_SEAL_DIGITS].encode()


def parse(line: bytes) -> dict[str, Any]:
    """Raises `ChannelClosed` for a line that is not a JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ChannelClosed("sent a line that is not JSON") from error
    if not isinstance(message, dict):
        raise ChannelClosed("sent JSON that is not an object")
    return message


def read_available(connection: socket.socket, buffer: bytearray, most: int) -> bool:
    """Append what has arrived to `buffer`, up to `most` bytes in it; True: the other side closed the connection."""
    while len(buffer) < most:
        try:
            data = connection.recv(min(1 << 16, most - len(buffer)))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        if not data:
            return True
        buffer += data
    return False


def take_line(buffer: bytearray) -> bytes | None:
    """Remove the first complete line from `buffer`, without its end; None: there is none yet."""
    line, end, _ = buffer.partition(b"\n")
    if not end:
        return None
    del buffer[: len(line) + 1]
    return bytes(line)
