"""A blocking iterator as an asynchronous stream: a thread reads it, no faster than the client takes it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
QUEUE_SIZE = 64
"""Items that are read ahead."""


class _End:
    """End of the stream, with the error if there was one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


class IteratorStream(Generic[T]):
    """One stream; when its client goes, the thread ends at the next item."""

    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue(QUEUE_SIZE)
        self._gone = threading.Event()

    async def items(self, *, beat_seconds: float) -> AsyncIterator[T | None]:
        """Everything that the iterator gives; None after so many seconds without it, so that a lost client shows.

        Raises:
            Exception: Whatever the iterator raised.
        """
        threading.Thread(target=self._read, name="pump", daemon=True).start()
        try:
            while True:
                item = await self._next(beat_seconds)
                if isinstance(item, _End):
                    break
                yield item
        finally:
            self._gone.set()
            while not self._queue.empty():
                self._queue.get_nowait()
        if item.error is not None:
            raise item.error

    async def _next(self, seconds: float) -> T | _End | None:
        try:
            return await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return None

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):  # the loop has ended, and the client with it
            try:
                for item in self._make():
                    if self._gone.is_set():
                        return
                    self._put(item)
            except Exception as error:
                self._put(_End(error))
            else:
                self._put(_End())

    def _put(self, item: T | _End) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()
