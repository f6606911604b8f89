"""TCP proxy that delays, throttles, cuts, resets or answers connections by rule, at a reproducible place.

Put it between a client and a server and give it rules; every fault it commits is in `strikes`. Its own thread runs
it, so it works with synchronous code and needs no privileges. The seed decides which requests `probability` hits.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self, TypeVar

from gangline.faults.connection import Connection
from gangline.faults.rules import Direction, FaultRule, InjectedFault

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
        for rule in [each for each in self._rules if each.after_bytes is not None and each.direction == direction]:
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
