"""Sends many pushes, each several times in random order, at a steady rate; keeps a log of every answer."""

import asyncio
import random
import re
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.serve.deliveries import push, signed

CONNECTIONS = 32


@dataclass(frozen=True)
class Sent:
    branch: str
    status: int | None
    """None: no answer."""
    seconds: float


def shuffled(pushes, *, times, seed):
    """(branch, headers, body) of every delivery, repeats anywhere."""
    every = [(f"b{n}", *signed(push(f"b{n}", f"{n:040x}"), delivery=f"d{n}")) for n in range(pushes)] * times
    random.Random(seed).shuffle(every)
    return every


def send(url, deliveries, *, seconds, on_each=lambda _: None):
    """All deliveries within `seconds`; what became of each."""
    return asyncio.run(_send(url, deliveries, seconds, on_each))


async def _send(url, deliveries, seconds, on_each):
    began = time.monotonic()
    address = urlsplit(url)
    idle = [Connection(address) for _ in range(CONNECTIONS)]
    places = asyncio.Semaphore(CONNECTIONS)

    async def one(branch, headers, body):
        due = time.monotonic()
        async with places:
            connection = idle.pop()
            try:
                status = await connection.post(headers, body)
            finally:
                idle.append(connection)
        return Sent(branch, status, time.monotonic() - due)

    tasks = []
    for number, delivery in enumerate(deliveries):
        await asyncio.sleep(max(0.0, began + seconds * number / len(deliveries) - time.monotonic()))
        on_each(number)
        tasks.append(asyncio.create_task(one(*delivery)))
    sent = await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return sent


class Connection:
    """One kept connection, opened again when it broke; as little work as may be, since both sides share the cores."""

    def __init__(self, address):
        self._address = address
        self._streams = None

    async def post(self, headers, body):
        """Status of the answer; None where none came."""
        lines = [f"POST {self._address.path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join([*lines, "", ""]).encode() + body
        for _ in range(2 if self._streams else 1):  # a connection that was idle may have been closed just now
            try:
                return await self._exchange(request)
            except (OSError, EOFError):
                self.close()
        return None

    async def _exchange(self, request):
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.hostname, self._address.port)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        return int(head.split(b" ", 2)[1])

    def close(self):
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
