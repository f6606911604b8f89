"""Smoke `serve`: a candidate and its base, each a server in a sandbox of its own, are struck in turns by this process.

No figure is one that a server says: this process sends, reads its own clock, compares each answer, and looks up the
memory of every process of a server in /proc. The other server is stopped meanwhile, so neither can slow the other.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gangline import procfs
from gangline.errors import IntegrityError, TrainingError
from gangline.infer.caller import OK, Caller, read_outputs, request_body
from gangline.infer.turns import GROUPS, ORDER, PER_TURN, SHARE, num_groups
from gangline.train.model.golden import TOLERANCE, Golden, difference

TOO_LARGE = 413
_WARM_REQUESTS = 10
_CONCURRENT = 4
_LOOK_SECONDS = 0.05
_STOP_TRIES = 200


@dataclass(slots=True)
class Server:
    """A server that is ready."""

    caller: Caller
    pids: Callable[[], Iterable[int]]
    """All its processes, those that it forked too."""
    turns: list[list[float]] = field(default_factory=list)
    """Times of answers, turn by turn."""
    num_failed: int = 0
    memory_bytes: int = 0
    """Most that the peaks of its processes were together, of all times that they were looked up."""

    def look(self) -> None:
        """Look up its memory: a process that ends, or resets its peak, is not forgotten."""
        self.memory_bytes = max(self.memory_bytes, sum(map(procfs.peak_bytes, self.pids())))

    def hold(self) -> None:
        """Stop all its processes; TrainingError where they multiply faster."""
        for _ in range(_STOP_TRIES):
            running = [pid for pid in self.pids() if procfs.state(pid) not in ("T", "Z", None)]
            if not running:
                return
            _send(signal.SIGSTOP, running)
            time.sleep(0.001)
        raise TrainingError(f"wanted to stop the processes of a server between its turns, {len(running)} run on")

    def go_on(self) -> None:
        """Let its processes run again."""
        _send(signal.SIGCONT, self.pids())

    def measured(self) -> dict[str, Any]:
        """What the verdict is made of."""
        return {"turns": self.turns, "failed": self.num_failed, "memory_bytes": self.memory_bytes}


def problems(caller: Caller, golden: Golden | None, body: bytes, *, most_bytes: int) -> Iterator[str]:
    """What the candidate answers otherwise than it must."""
    status, answer = caller.infer(body)
    if status != OK:
        yield f"a good request was answered with status {status}: {answer[:120].decode(errors='replace')}"
        return
    if not (gap := _gap(golden, answer)) <= TOLERANCE:
        yield f"the golden sample is answered otherwise: difference {gap:.2g}, wanted at most {TOLERANCE:g}"
    status, _ = caller.infer(b'{"inputs": [')
    if not 400 <= status < 500:
        yield f"a malformed request was answered with status {status}, wanted 4xx"
    if (status := caller.announce(most_bytes + 1)) != TOO_LARGE:
        yield f"a request of {most_bytes + 1} bytes was answered with status {status}, wanted {TOO_LARGE}"
    if (status := caller.infer(body)[0]) != OK:
        yield f"after those two a good request was answered with status {status}"


def golden_body(caller: Caller, golden: Golden | None) -> bytes:
    """The request that is sent all the time: the golden sample, or zeros."""
    return request_body(golden.inputs if golden else caller.sample())


def strike(server: Server, base: Server | None, golden: Golden | None, body: bytes, *, budget: float) -> dict[str, Any]:
    """What was measured in turns of about `budget` seconds; each answer of the candidate is compared with `golden`."""
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(PER_TURN) as pool, _watched([each for each in (server, base) if each]):
        for each in filter(None, (base, server)):  # alike, for the memory of both is compared
            _one_by_one(each.caller, body)  # the first answers of a server are slow
            found["per_second"] = _per_second(each.caller, body, pool)
        seconds = median(_one_by_one((base or server).caller, body))
        for _ in range(num_groups(seconds, budget) if base else GROUPS):
            for letter in ORDER if base else ORDER.replace("B", ""):
                struck, other = (base, server) if letter == "B" and base else (server, base)
                with _held(other):
                    answers = struck.caller.turn(body, pool, seconds=seconds / SHARE)
                struck.turns.append([took for took, _, _ in answers])
                wanted = golden if struck is server else None
                struck.num_failed += sum(status != OK or not _gap(wanted, each) <= TOLERANCE
                                         for _, status, each in answers)  # fmt: skip
    found |= {"arrivals_per_second": SHARE / seconds, "candidate": server.measured()}
    if base is not None and base.num_failed:
        found["no_base"] = f"it left {base.num_failed} of {len(base.turns) * PER_TURN} requests without an answer"
    elif base is not None:
        found["base"] = base.measured()
    return found


def _gap(golden: Golden | None, answer: bytes) -> float:
    """Difference of an answer from the golden one; infinite: it is none."""
    try:
        return 0.0 if golden is None else difference(golden.outputs, read_outputs(answer))
    except IntegrityError:
        return float("inf")


@contextmanager
def _watched(servers: list[Server]) -> Iterator[None]:
    """The memory of `servers` is looked up all the time."""
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(_LOOK_SECONDS):
            for server in servers:
                server.look()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@contextmanager
def _held(server: Server | None) -> Iterator[None]:
    if server is None:
        yield
        return
    try:
        server.hold()
        yield
    finally:
        server.go_on()


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _one_by_one(caller: Caller, body: bytes) -> list[float]:
    """Times of some answers without any queue."""
    times = []
    for _ in range(_WARM_REQUESTS):
        start = time.monotonic()
        caller.infer(body)
        times.append(time.monotonic() - start)
    return times


def _per_second(caller: Caller, body: bytes, pool: ThreadPoolExecutor) -> float:
    """Answers a second to callers that wait for theirs."""
    start = time.monotonic()
    statuses = list(pool.map(lambda _: caller.infer(body)[0], range(_WARM_REQUESTS * _CONCURRENT)))
    return statuses.count(OK) / (time.monotonic() - start)
