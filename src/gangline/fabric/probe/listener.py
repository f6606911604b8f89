"""Listener of a server, which answers probes and, asked by somebody who knows the secret, probes others.

It needs the standard library alone. `gangline fabric probe` asks the listeners and shows what they found.
"""

import hmac
import json
import secrets
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError, UsageError
from gangline.fabric.probe.client import BLOCK_BYTES, TIMEOUT_SECONDS, send, sign
from gangline.fabric.probe.links import PROBES_PER_SECOND
from gangline.fabric.probe.packets import (
    MOST_LINE_BYTES,
    MOST_SECONDS,
    MOST_TARGETS,
    Address,
    Echo,
    ProbeLog,
    ProbeResult,
    parse_address,
    probe_packet,
    read_reply,
    to_plain,
)

MOST_UNSIGNED = 64
"""Connections at the same time that have not signed a request; one that knows the secret needs milliseconds to."""


class ProbeServer(socketserver.ThreadingTCPServer):
    """Server in which the oldest connection without a signed request gives way to a new one."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler], *, secret: bytes
    ) -> None:
        self.secret = secret
        self._unsigned: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a new connection, and end the oldest one above the limit."""
        with self._lock:
            self._unsigned[request] = None
            oldest = next(iter(self._unsigned)) if len(self._unsigned) > MOST_UNSIGNED else None
        if oldest is not None:
            self.admit(oldest)
            with suppress(OSError):  # its thread ends with it
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.admit(request)
        super().shutdown_request(request)

    def admit(self, connection: socket.socket) -> None:
        """Take the connection out of those that have not signed a request."""
        with self._lock:
            self._unsigned.pop(connection, None)


PORT = 4719
REPLY_SECONDS = 1.0
"""A probe whose reply takes longer is lost."""
MOST_SOCKETS = 512
"""Sockets that one request may open: a process may have 1,024 by default."""


class Listener:
    """Answers probes (UDP) and requests (TCP) on one port until it is closed."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, secret: bytes = b"") -> None:
        """Port 0 takes a free one.

        Raises:
            UsageError: Other machines could reach it, and there is no secret; or the address is not free.
        """
        if not secret and not host.startswith("127.") and host != "::1":
            raise UsageError(
                f"a listener on {host} sends traffic for any client: wanted a secret of at least 16 characters, "
                "found none; give --secret-file, the same file on every server"
            )
        try:
            self._server = ProbeServer((host, port), _Request, secret=secret)
            self._datagrams = _bound(host, self._server.server_address[1])
        except OSError as error:
            raise UsageError(f"wanted to listen on {host}:{port}, found: {error.strerror}") from error
        self.address = host, int(self._server.server_address[1])
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True),
            threading.Thread(target=self._echo, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop answering; returns when the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._datagrams.close()
        for thread in self._threads:
            thread.join()

    def _echo(self) -> None:
        echo = Echo()
        while self._datagrams.fileno() >= 0:
            try:
                data, sender = self._datagrams.recvfrom(2048)
                if (reply := echo.reply(data)) is not None:
                    self._datagrams.sendto(reply, sender)
            except TimeoutError:
                continue
            except OSError:
                continue


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(0.2)
    sock.bind((host, port))
    return sock


class _Request(socketserver.StreamRequestHandler):
    """One connection: a nonce, a signed request, an answer."""

    server: ProbeServer
    timeout = TIMEOUT_SECONDS

    def handle(self) -> None:
        nonce = secrets.token_hex(16)
        try:
            self.wfile.write(f"{nonce}\n".encode())
            signature, _, text = self._line().strip().partition(b" ")
            if not hmac.compare_digest(signature, sign(self.server.secret, nonce, text)):
                self._answer({"error": "wanted a request signed with this listener's secret, found another", "exit": 2})
                return
            self.server.admit(self.connection)
            self._answer(self._do(json.loads(text)))
        except GanglineError as error:
            self._answer({"error": str(error), "exit": error.exit_code})
        except (OSError, ValueError, TypeError, KeyError) as error:
            self._answer({"error": f"wanted a request of this version, found: {error}", "exit": 2})

    def _line(self) -> bytes:
        """The first line; raises TimeoutError if it is not whole in time, however many pieces have come."""
        until, data = time.monotonic() + TIMEOUT_SECONDS, b""
        while b"\n" not in data and len(data) < MOST_LINE_BYTES:
            self.connection.settimeout(max(until - time.monotonic(), 1e-3))
            piece = self.connection.recv(MOST_LINE_BYTES - len(data))
            if not piece:
                break
            data += piece
        self.connection.settimeout(TIMEOUT_SECONDS)
        return data.partition(b"\n")[0]

    def _do(self, request: Mapping[str, Any]) -> dict[str, Any]:
        do = request["do"]
        if do == "receive":
            return self._receive()
        seconds = min(float(request["seconds"]), MOST_SECONDS)
        if do == "probe":
            targets = [parse_address(str(each)) for each in request["targets"][:MOST_TARGETS]]
            results = probe_targets(targets, seconds=seconds, flows=int(request["flows"]))
            return {"results": to_plain(results)}
        if do == "send":
            return {"bytes_per_second": send(parse_address(request["target"]), self.server.secret, seconds=seconds)}
        raise ValueError(f"no request {do!r}")

    def _receive(self) -> dict[str, Any]:
        """Count what comes until the sender stops sending."""
        self.wfile.write(b"go\n")
        buffer, size_bytes, started = bytearray(BLOCK_BYTES), 0, time.monotonic()
        while (count := self.connection.recv_into(buffer)) and time.monotonic() - started < 2 * MOST_SECONDS:
            size_bytes += count
        return {"size_bytes": size_bytes, "seconds": time.monotonic() - started}

    def _answer(self, answer: Mapping[str, Any]) -> None:
        try:
            self.wfile.write(json.dumps(answer).encode() + b"\n")
        except OSError:
            return


def probe_targets(
    targets: Sequence[Address], *, seconds: float, flows: int, per_second: float = PROBES_PER_SECOND
) -> list[ProbeResult]:
    """Probe all targets at the same time, each `per_second` times a second.

    Args:
        targets: Listeners.
        seconds: For which probes are sent; a path that is found lossy gets no more.
        flows: Source ports that take turns: switches that hash choose a path by them; fewer if all would be too many.
        per_second: Probes to each target.
    """
    flows = max(1, min(flows, MOST_SOCKETS // max(1, len(targets))))
    with selectors.DefaultSelector() as selector:
        sessions = [_Session(target, flows, selector) for target in targets]
        started = time.monotonic()
        while any(not each.is_over(started, seconds) for each in sessions):
            now = time.monotonic()
            for session in sessions:
                session.tend(started, now, seconds=seconds, per_second=per_second)
            for key, _ in selector.select(timeout=0.2 / per_second):
                key.data.receive(key.fileobj)
        for session in sessions:
            session.close()
    return [each.log.result() for each in sessions]


class _Session:
    """Probes of one target."""

    def __init__(self, target: Address, flows: int, selector: selectors.BaseSelector) -> None:
        self.log = ProbeLog(f"{target[0]}:{target[1]}", flows, REPLY_SECONDS)
        self._number = secrets.randbits(64)
        self._sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)[0]
        except OSError as error:
            raise UsageError(f"wanted a server to probe, found {target[0]!r}: {error.strerror}") from error
        for _ in range(self.log.flows):
            sock = socket.socket(found[0], socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.connect(found[4])
            selector.register(sock, selectors.EVENT_READ, self)
            self._sockets.append(sock)

    def tend(self, started: float, now: float, *, seconds: float, per_second: float) -> None:
        """Send what is due, and give up what has waited too long."""
        log = self.log
        while now < started + seconds and not log.test.is_lossy and started + len(log.sent) / per_second <= now:
            packet = probe_packet(self._number, len(log.sent))
            log.sent.append(now)
            with suppress(OSError):  # refused or no route: a lost probe
                self._sockets[(len(log.sent) - 1) % log.flows].send(packet)
        log.decide(now)

    def receive(self, sender: socket.socket) -> None:
        """Read one reply."""
        with suppress(OSError):
            if (reply := read_reply(sender.recv(2048), self._number)) is not None:
                self.log.replied(*reply, time.monotonic())

    def is_over(self, started: float, seconds: float) -> bool:
        """Whether nothing more is to be sent or awaited."""
        is_sent = time.monotonic() >= started + seconds or self.log.test.is_lossy
        return is_sent and self.log.is_decided

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def read_secret(path: Path | None) -> bytes:
    """The secret that listeners and those who ask them share; empty without a file.

    Raises:
        UsageError: The file cannot be read, or holds fewer than 16 characters.
    """
    if path is None:
        return b""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"wanted the secret of the listeners in {path}, found: {error.strerror}") from error
    if len(secret) < 16:
        raise UsageError(f"wanted a secret of at least 16 characters in {path}, found {len(secret)}")
    return secret
