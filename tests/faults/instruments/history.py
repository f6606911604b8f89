"""History checker: could what the clients saw be one compare-and-set register per key, step by step?

Clients record begin and end of every call. A history is *linearizable* if each call can be given one instant between
its begin and its end so that a single register, served in that order, gives the same answers. A call whose answer was
lost stays open for ever: it may have happened at any time after its begin, or never. The search is Wing and Gong's,
over all orders, with the visited pairs of (calls placed, register) remembered; registers are independent, so each key
is searched alone.

Values stand for versions: writers give each write a value of its own.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from gangline.errors import StorageError
from gangline.storage.objects.protocol import Etag, ObjectStore

Value = bytes | None
"""None: nothing is there."""


@dataclass(frozen=True, kw_only=True)
class Call:
    worker: int
    operation: Literal["read", "put", "create", "swap"]
    key: str = "k"
    begin: float
    end: float = inf
    outcome: Literal["ok", "fail", "unknown"] = "ok"
    """`fail` is an answer: somebody else was first."""
    value: Value = None
    """What was read, or was to be written."""
    expected: Value = None
    """What `swap` wanted to replace."""

    def __str__(self) -> str:
        wanted = f"{self.expected!r} -> " if self.operation == "swap" else ""
        return f"worker {self.worker} {self.operation} {wanted}{self.value!r}: {self.outcome}"


def check(history: Sequence[Call]) -> str | None:
    """None if the history is linearizable; else the key, and the calls that no order explains."""
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in history:
        by_key[call.key].append(call)
    for key, calls in by_key.items():
        if stuck := _search(sorted(calls, key=lambda call: call.begin)):
            return f"key {key}: no order explains\n  " + "\n  ".join(map(str, stuck))
    return None


def _search(calls: list[Call]) -> list[Call]:
    """[] if an order exists; else the calls that are open where the furthest order got stuck."""
    answered = sum(1 << i for i, call in enumerate(calls) if call.outcome != "unknown")
    stack: list[tuple[int, Value]] = [(0, None)]
    seen = set(stack)
    furthest = 0
    while stack:
        placed, register = stack.pop()
        placed = _place_harmless(calls, placed, register)
        if placed & answered == answered:
            return []
        if (placed & answered).bit_count() > (furthest & answered).bit_count():
            furthest = placed
        for i in sorted(_next(calls, placed), key=lambda i: -calls[i].end):  # the first to end is tried first
            fits, after = _apply(calls[i], register)
            state = (placed | 1 << i, after)
            if fits and state not in seen:
                seen.add(state)
                stack.append(state)
    return [calls[i] for i in _next(calls, furthest)] or calls


def _place_harmless(calls: list[Call], placed: int, register: Value) -> int:
    """Place every answered call that fits here and can change nothing: no order is lost by having it early.

    A write of what stands there already is none of them: it may be wanted again once that was overwritten.
    """
    while True:
        before = placed
        for i in _next(calls, placed):
            asks = calls[i].outcome == "fail" or (calls[i].operation == "read" and calls[i].outcome == "ok")
            if asks and _apply(calls[i], register) == (True, register):
                placed |= 1 << i
        if placed == before:
            return placed


def _next(calls: list[Call], placed: int) -> list[int]:
    """Calls that may come next: begun before any other that is still to be placed has ended."""
    left = [i for i in range(len(calls)) if not placed >> i & 1]
    first_end = min((calls[i].end for i in left), default=inf)
    return [i for i in left if calls[i].begin <= first_end]


def _apply(call: Call, register: Value) -> tuple[bool, Value]:
    """Could `call` be served by `register` with its outcome, and what stands there afterwards."""
    if call.operation == "read":
        return call.outcome == "unknown" or register == call.value, register
    if call.operation == "put":
        return call.outcome != "fail", call.value
    would_win = register is None if call.operation == "create" else register is not None and register == call.expected
    if call.outcome == "unknown":
        return True, call.value if would_win else register
    return would_win == (call.outcome == "ok"), call.value if would_win else register


@dataclass
class History:
    """Calls of many threads; `client` gives each worker its own view of a store."""

    calls: list[Call] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, store: ObjectStore, worker: int) -> "Client":
        return Client(store, worker, self)

    def add(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)


@dataclass
class Client:
    """One worker's calls, recorded."""

    store: ObjectStore
    worker: int
    history: History

    def read(self, key: str) -> tuple[Value, Etag]:
        begin = time.monotonic()
        blob = self.store.get(key)
        value = blob.data if blob else None
        self.history.add(
            Call(worker=self.worker, operation="read", key=key, begin=begin, end=time.monotonic(), value=value)
        )
        return value, blob.etag if blob else ""

    def put(self, key: str, value: bytes) -> None:
        self._write("put", key, lambda: self.store.put(key, value), value, None)

    def create(self, key: str, value: bytes) -> Etag | None:
        return self._write("create", key, lambda: self.store.put_if_absent(key, value), value, None)

    def swap(self, key: str, value: bytes, *, expected: Value, etag: Etag) -> Etag | None:
        return self._write("swap", key, lambda: self.store.compare_and_set(key, value, etag), value, expected)

    def _write(
        self,
        operation: Literal["put", "create", "swap"],
        key: str,
        write: Callable[[], Etag | None],
        value: bytes,
        expected: Value,
    ) -> Etag | None:
        begin = time.monotonic()
        outcome: Literal["ok", "fail", "unknown"] = "unknown"
        end = inf
        etag = None
        try:
            etag = write()
            outcome, end = ("ok" if etag else "fail"), time.monotonic()
        except StorageError:
            etag = None  # it may have happened: the call stays open
        finally:
            call = Call(
                worker=self.worker,
                operation=operation,
                key=key,
                begin=begin,
                end=end,
                outcome=outcome,
                value=value,
                expected=expected,
            )
            self.history.add(call)
        return etag
