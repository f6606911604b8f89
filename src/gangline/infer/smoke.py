"""Smoke `serve`: a candidate and its base are started as `gangline infer` starts them, and struck in turns.

python -m gangline.infer.smoke OPTIONS.json, in the sandbox of the candidate's commit; the last line of its output is
JSON. A candidate that does not answer as it must is an answer, too; one that does not start ends this process with its
exit code. A base that does not start or answer is a reason, and nothing is compared.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

from gangline import procfs
from gangline.errors import GanglineError, TrainingError, error_for
from gangline.infer.caller import Caller, read_outputs, request_body
from gangline.infer.turns import GROUPS, ORDER, PER_TURN, SHARE, num_groups
from gangline.train.model.golden import TOLERANCE, difference, read_golden

if TYPE_CHECKING:
    from numpy import ndarray

OK, TOO_LARGE = 200, 413
_WARM_REQUESTS = 10
_CONCURRENT = 4
_DRAIN_SECONDS = 40.0
_LAST_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerJob:
    """One version to start."""

    name: str
    version: int
    folder: str
    code: str | None


@dataclass(slots=True)
class Server:
    """A server that is ready."""

    process: subprocess.Popen[bytes]
    caller: Caller
    turns: list[list[float]] = field(default_factory=list)
    """Times of answers, turn by turn."""
    num_failed: int = 0

    def measured(self) -> dict[str, Any]:
        """What the verdict is made of."""
        return {"turns": self.turns, "failed": self.num_failed, "memory_bytes": peak_bytes(self.process.pid)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, strike, print JSON; returns the exit code."""
    options = json.loads(Path((arguments or sys.argv[1:])[0]).read_bytes())
    try:
        answer = smoke(options)
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def smoke(options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured.

    Raises:
        GanglineError: The candidate does not start; of its exit code, with its last line.
    """
    found: dict[str, Any] = {"load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}
    job, seconds = ServerJob(**options["candidate"]), float(options["start_seconds"])
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(PER_TURN))
        server = stack.enter_context(started(job, options, seconds))
        golden = read_golden(Path(job.folder))
        body = request_body(_first_of(golden.inputs) if golden else server.caller.sample())
        found["problems"] = list(_problems(server.caller, Path(job.folder), int(options["max_request_bytes"]), body))
        if found["problems"]:
            return found
        base, found["no_base"] = _base(stack, options, seconds, body)
        for each in filter(None, (base, server)):  # alike, for the memory of both is compared
            _one_by_one(each.caller, body)  # the first answers of a server are slow
            found["per_second"] = _per_second(each.caller, body, pool)
        answer = median(_one_by_one((base or server).caller, body))
        _strike(server, base, body, pool, answer=answer, budget=float(options["strike_seconds"]))
        found |= {"arrivals_per_second": SHARE / answer, "candidate": server.measured()}
        if base is not None and base.num_failed:
            found["no_base"] = f"it left {base.num_failed} of {len(base.turns) * PER_TURN} requests without an answer"
        elif base is not None:
            found["base"] = base.measured()
    return found


def _base(stack: ExitStack, options: Mapping[str, Any], seconds: float, body: bytes) -> tuple[Server | None, str]:
    """The base, started and able to answer the same request; else None and the reason."""
    if options.get("base") is None:
        return None, str(options.get("no_base") or "")
    try:
        server = stack.enter_context(started(ServerJob(**options["base"]), options, seconds))
    except GanglineError as error:
        return None, f"it does not start: {error}"
    status, _ = server.caller.infer(body)
    return (server, "") if status == OK else (None, f"it answers a request of the candidate with status {status}")


@contextmanager
def started(job: ServerJob, options: Mapping[str, Any], seconds: float) -> Iterator[Server]:
    """A server of `job` on a free port, ready; it ends with SIGTERM."""
    command = [
        sys.executable, "-m", str(options["module"]), str(Path(job.folder).resolve()), "--name", job.name,
        "--version", str(job.version), "--port", str(_free_port()),
        "--max-request-bytes", str(options["max_request_bytes"]),
        *(["--code", str(Path(job.code).resolve())] if job.code else []),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=job.code or None)
        with process:
            try:
                caller = Caller(_url(process, errors, seconds), job.name)
                yield Server(process, caller)
                caller.close()
            finally:
                _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_DRAIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _url(process: "subprocess.Popen[bytes]", errors: IO[bytes], seconds: float) -> str:
    """The address that the process prints once it is ready."""
    assert process.stdout is not None
    with ThreadPoolExecutor(1) as pool:
        line = pool.submit(process.stdout.readline)
        try:
            found = line.result(seconds)
        except TimeoutError as error:
            process.kill()
            raise TrainingError(f"the server was not ready within {seconds:.0f} s") from error
    if found:
        return str(json.loads(found)["ready"])
    code = process.wait()
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_BYTES))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    raise error_for(code if code > 0 else 128 - code)(lines[-1][:300] if lines else f"the server ended with {code}")


def _problems(caller: Caller, folder: Path, most_bytes: int, body: bytes) -> Iterator[str]:
    """What the candidate answers otherwise than it must."""
    golden = read_golden(folder)
    status, answer = caller.infer(request_body(golden.inputs) if golden else body)
    if status != OK:
        yield f"a good request was answered with status {status}: {answer[:120].decode(errors='replace')}"
        return
    if golden and not (gap := difference(golden.outputs, read_outputs(answer))) <= TOLERANCE:
        yield f"the golden sample is answered otherwise: difference {gap:.2g}, wanted at most {TOLERANCE:g}"
    status, _ = caller.infer(b'{"inputs": [')
    if not 400 <= status < 500:
        yield f"a malformed request was answered with status {status}, wanted 4xx"
    if (status := caller.announce(most_bytes + 1)) != TOO_LARGE:
        yield f"a request of {most_bytes + 1} bytes was answered with status {status}, wanted {TOO_LARGE}"
    if (status := caller.infer(body)[0]) != OK:
        yield f"after those two a good request was answered with status {status}"


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


def _strike(
    server: Server, base: Server | None, body: bytes, pool: ThreadPoolExecutor, *, answer: float, budget: float
) -> None:
    """Turns in the order A B B A; without a base all are the candidate's."""
    for _ in range(num_groups(answer, budget) if base else GROUPS):
        for letter in ORDER if base else ORDER.replace("B", ""):
            struck = base if letter == "B" and base else server
            times, failed = struck.caller.turn(body, pool, seconds=answer / SHARE)
            struck.turns.append(times)
            struck.num_failed += failed


def _first_of(batch: "Mapping[str, ndarray]") -> "dict[str, ndarray]":
    return {name: each[:1] for name, each in batch.items()}


def peak_bytes(pid: int) -> int:
    """Most memory that a process and those below it ever had, each by itself."""
    return sum(map(procfs.peak_bytes, procfs.descendants(pid)))


if __name__ == "__main__":
    sys.exit(main())
