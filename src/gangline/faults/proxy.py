"""TCP proxy that delays, throttles, cuts, resets or answers connections by rule, at a reproducible place.

Put it between a client and a server and give it rules; every fault it commits is in `strikes`. Its own thread runs
it, so it works with synchronous code and needs no privileges. The seed decides which requests `probability` hits.
"""

import asyncio
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from gangline.errors import UsageError

Direction = Literal["up", "down"]
"""`up`: from client to server; `down`: the answer."""
Action = Literal["delay", "throttle", "cut", "reset", "swallow", "answer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRule:
    """One fault and its trigger: exactly one of `after_bytes`, `on_request`, `probability`.

    Requests are those of HTTP/1.1 with a Content-Length, counted over all connections from 1; a connection with any
    other protocol counts as one request. A rule on requests applies `up` before any byte of the request is forwarded,
    and `down` when the answer begins, so after the server has processed the request.
    """

    action: Action
    """`delay` by `seconds`; `throttle` the connection to `bytes_per_second`; `cut`: close both ends; `reset` both ends;
    `swallow`: keep reading, forward nothing; `answer` the client with `status` and drop the rest."""
    direction: Direction = "up"
    after_bytes: int | None = None
    """Applies once, after so many bytes in `direction` on all connections."""
    on_request: int | None = None
    probability: float | None = None
    """Chance of the fault at each request."""
    seconds: float = 0.0
    bytes_per_second: float = 0.0
    status: int = 503
    retry_after_seconds: int | None = None
    """Header Retry-After of an `answer`."""

    def __post_init__(self) -> None:
        triggers = [each for each in (self.after_bytes, self.on_request, self.probability) if each is not None]
        if len(triggers) != 1:
            raise UsageError(
                f"wanted exactly one of after_bytes, on_request, probability, found {len(triggers)}: {self}"
            )
        if self.action == "delay" and self.seconds <= 0:
            raise UsageError(f"delay: wanted seconds > 0, found {self.seconds}")
        if self.action == "throttle" and self.bytes_per_second <= 0:
            raise UsageError(f"throttle: wanted bytes_per_second > 0, found {self.bytes_per_second}")


@dataclass(frozen=True, kw_only=True, slots=True)
class InjectedFault:
    """One fault that was injected."""

    rule: FaultRule
    request: int
    """Number of the affected request; for a rule on bytes, of the latest one."""
    passed_bytes: int
    """Bytes in the direction of the rule on all connections until then."""
    mono: float


_MAX_HEAD_BYTES = 65536
_METHOD = re.compile(rb"[A-Z]{1,16} ")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class RequestMeter:
    """Finds the starts of HTTP requests in one connection; other data, or data of unknown length, is one request."""

    def __init__(self) -> None:
        self._head = b""
        self._body_left = 0
        self._is_opaque = False

    def starts(self, chunk: bytes) -> list[int]:
        """Offsets in `chunk`, the next bytes of the connection, at which a request begins."""
        found = []
        at = 0
        while at < len(chunk):
            if self._is_opaque:
                break
            if self._body_left:
                step = min(self._body_left, len(chunk) - at)
                self._body_left -= step
                at += step
                continue
            if not self._head:
                found.append(at)
            at += self._take_head(chunk[at:])
        return found

    def _take_head(self, rest: bytes) -> int:
        """Read `rest` up to the end of the head; returns how many bytes that took."""
        known = len(self._head)
        text = self._head + rest
        end = text.find(_END)
        if end < 0:
            self._head = text
            self._is_opaque = len(text) > _MAX_HEAD_BYTES or (len(text) > 16 and not _METHOD.match(text))
            return len(rest)
        head = text[: end + len(_END)]
        length = _LENGTH.search(head)
        self._head, self._body_left = b"", int(length[1]) if length else 0
        self._is_opaque = not _METHOD.match(head) or b"\r\ntransfer-encoding:" in head.lower()
        return len(head) - known


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Connection:
    """One client connection through the proxy, and the faults in force on it."""

    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    meter: RequestMeter = field(default_factory=RequestMeter)
    request: int = 0
    pending: list[FaultRule] = field(default_factory=list)
    """Rules that apply when the answer begins."""
    rate: dict[Direction, float] = field(default_factory=dict)
    deaf: set[Direction] = field(default_factory=set)

    def is_deaf(self, direction: Direction) -> bool:
        """Whether bytes in this direction are dropped."""
        return direction in self.deaf

    async def answer(self, rule: FaultRule) -> None:
        """Answer in place of the server; all further bytes of both sides are dropped."""
        self.deaf |= {"up", "down"}
        head = [f"HTTP/1.1 {rule.status} Fault Injected", "Content-Length: 0", "Connection: close"]
        if rule.retry_after_seconds is not None:
            head.append(f"Retry-After: {rule.retry_after_seconds}")
        self.client.write("\r\n".join([*head, "", ""]).encode())
        await self.client.drain()

    def reset(self) -> None:
        """Close both sides with a TCP reset."""
        for writer in filter(None, (self.client, self.server)):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    def close(self) -> None:
        for writer in filter(None, (self.client, self.server)):
            with suppress(RuntimeError):  # the loop is closing
                writer.close()


_CHUNK_BYTES = 65536
_Result = TypeVar("_Result")


class FaultProxy:
    """Proxy on a loopback port in front of `host:port`; a context manager.

    Args:
        rules: Initial rules; `set_rules` replaces them and restarts the counts of requests and bytes.
        seed: Of the random numbers for `probability`.
    """

    def __init__(self, host: str, port: int, *, rules: Sequence[FaultRule] = (), seed: int = 0) -> None:
        self.strikes: list[InjectedFault] = []
        self.port = 0
        """Chosen at the start and kept."""
        self.requests = 0
        self.passed: Counter[Direction] = Counter()
        self._upstream = (host, port)
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_connections = 0
        self._reload(rules)

    @property
    def endpoint(self) -> str:
        """URL of the proxy, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set_rules(self, *rules: FaultRule) -> None:
        """Replace the rules; open connections stay, with the faults already applied to them."""

        async def replace() -> None:
            self._reload(rules)

        self._do(replace())

    def open(self) -> None:
        """Accept connections, on the same port as before."""
        self._do(self._listen())

    def shut(self) -> None:
        """Refuse new connections and close the open ones, like a server that is down, until `open`."""
        self._do(self._stop())

    def _do(self, what: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def _reload(self, rules: Sequence[FaultRule]) -> None:
        self._rules = list(rules)
        self._random = random.Random(self._seed)  # noqa: S311  a fault is replayed by its seed
        self.requests = 0
        self.passed.clear()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=_CHUNK_BYTES)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._num_connections += 1
        connection = Connection(self._num_connections, client=writer)
        self._connections.add(connection)
        try:
            up_reader, connection.server = await asyncio.open_connection(*self._upstream, limit=_CHUNK_BYTES)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump("up", connection, reader, connection.server))
                pumps.create_task(self._pump("down", connection, up_reader, writer))
        except* (OSError, _Ended, asyncio.CancelledError):
            pass  # the end of a connection is not reported; injected faults are in `strikes`
        finally:
            connection.close()
            self._connections.discard(connection)
            self._tasks.discard(task)

    async def _pump(
        self,
        direction: Direction,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            for piece, begins in self._pieces(direction, connection, chunk):
                if begins:
                    await self._begin_request(connection)
                if direction == "down":
                    await self._strike_pending(connection)
                await self._pass_on(direction, connection, piece, writer)
        if direction == "down":
            raise _Ended
        writer.write_eof()  # a client may end its side and still wait for the answer

    def _pieces(self, direction: Direction, connection: Connection, chunk: bytes) -> list[tuple[bytes, bool]]:
        """`chunk` split where requests begin."""
        starts = connection.meter.starts(chunk) if direction == "up" else []
        edges = sorted({0, *starts, len(chunk)})
        return [(chunk[a:b], a in starts) for a, b in pairwise(edges)]

    async def _begin_request(self, connection: Connection) -> None:
        self.requests += 1
        connection.request = self.requests
        for rule in self._rules:
            if self._hits(rule):
                if rule.direction == "up":
                    await self._strike(rule, connection)
                else:
                    connection.pending.append(rule)

    def _hits(self, rule: FaultRule) -> bool:
        if rule.probability is not None:
            return self._random.random() < rule.probability
        return rule.on_request == self.requests

    async def _strike_pending(self, connection: Connection) -> None:
        while connection.pending:
            await self._strike(connection.pending.pop(0), connection)

    async def _pass_on(
        self, direction: Direction, connection: Connection, piece: bytes, writer: asyncio.StreamWriter
    ) -> None:
        for rule in [
            fault_rule
            for fault_rule in self._rules
            if fault_rule.after_bytes is not None and fault_rule.direction == direction
        ]:
            before = (rule.after_bytes or 0) - self.passed[direction]
            if before < len(piece):
                self._rules.remove(rule)
                first, piece = piece[: max(before, 0)], piece[max(before, 0) :]
                await self._write(direction, connection, first, writer)
                await self._strike(rule, connection)
        await self._write(direction, connection, piece, writer)

    async def _write(
        self, direction: Direction, connection: Connection, data: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if not data or connection.is_deaf(direction):
            return
        self.passed[direction] += len(data)
        rate = connection.rate.get(direction)
        size = max(1, int(rate / 20)) if rate else len(data)
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            if rate:
                await asyncio.sleep(size / rate)

    async def _strike(self, rule: FaultRule, connection: Connection) -> None:
        self.strikes.append(
            InjectedFault(
                rule=rule,
                request=connection.request,
                passed_bytes=self.passed[rule.direction],
                mono=time.monotonic(),
            )
        )
        match rule.action:
            case "delay":
                await asyncio.sleep(rule.seconds)
            case "throttle":
                connection.rate[rule.direction] = rule.bytes_per_second
            case "swallow":
                connection.deaf.add(rule.direction)
            case "answer":
                await connection.answer(rule)
            case "cut":
                raise _Ended
            case "reset":
                connection.reset()
                raise _Ended


class _Ended(Exception):
    """This connection is over."""
