"""Start of rank processes: forked by the warm parent, or spawned. Both report every exit in order.

Each rank leads its own session, ends with its parent and writes to its own log.
"""

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Protocol

from gangline.errors import ConfigError, NoProgressError, TrainingError
from gangline.keeper.ipc.signals import MESSAGE_BYTES, die_with_parent
from gangline.keeper.ranks.rank_exit import RankExit, exit_of
from gangline.procfs import children, command, name, state

_ANSWER_SECONDS = 60.0
"""Time without an answer after which the warm parent counts as dead."""

_LEAVE_SECONDS = 0.5
"""Time for processes of a rank to see that it ended, as workers of `multiprocessing` do."""
MOST_LEFTOVERS, _COMMAND_CHARACTERS = 20, 120


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStart:
    """What a starter needs to start the process of one rank."""

    rank: int
    argv: tuple[str, ...]
    """Command of a program; empty: the task runtime."""
    environ: dict[str, str]
    cwd: Path
    log: Path


class Starter(Protocol):
    """Starts the processes of ranks, and collects their exits."""

    def start(self, ranks: Sequence[RankStart]) -> dict[int, int]:
        """Start all ranks; returns rank to pid. Raises `TrainingError` on failure, with none left running."""
        ...

    def exits(self) -> list[RankExit]:
        """Ranks that ended since the last call."""
        ...

    def pids(self) -> list[int]:
        """Processes of the starter itself."""
        ...

    def handles(self) -> list[int]:
        """File descriptors that become readable when a rank ended."""
        ...

    def close(self) -> None: ...


class Spawner:
    """Starts ranks as fresh processes: programs, and tasks for which forking is not wanted or not safe."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, ranks: Sequence[RankStart]) -> dict[int, int]:
        try:
            for rank_start in ranks:
                self._processes[rank_start.rank] = _spawn(rank_start)
        except OSError as error:
            for rank in list(self._processes):
                process = self._processes.pop(rank)
                process.kill()
                process.wait()
            raise ConfigError(f"cannot start {rank_start.argv[0]!r} in the code layer: {error.strerror}") from error
        return {rank: process.pid for rank, process in self._processes.items()}

    def exits(self) -> list[RankExit]:
        rank_exits = []
        for rank, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[rank]
                number = -code if code < 0 else None
                rank_exits.append(
                    RankExit(rank=rank, code=128 - code if code < 0 else code, signal=number, mono=_now())
                )
        return rank_exits

    def pids(self) -> list[int]:
        return []

    def handles(self) -> list[int]:
        return []

    def close(self) -> None:
        return


class WarmParent:
    """Starts ranks as forks of the warm parent (`train.rank.warm_parent`), which this class starts."""

    def __init__(self, *, python: str, environ: dict[str, str], log: Path, timeout_seconds: float) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [python, "-m", "gangline.train.rank.warm_parent", str(theirs.fileno()), str(os.getpid())]
        with theirs, log.open("ab") as out:
            self._process = subprocess.Popen(
                command, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self._channel.settimeout(_ANSWER_SECONDS)
        self._log = log
        self._deadline = time.monotonic() + timeout_seconds
        self._exits: list[RankExit] = []
        self._living: dict[int, int] = {}
        self.import_seconds: float | None = None
        self.threads = 1
        """Threads of the warm parent after its imports; forking is safe with one only."""
        self.alive = True

    def ready(self) -> bool:
        """The warm parent has finished its imports.

        Raises:
            TrainingError: It died; the last line of its log is quoted.
            NoProgressError: It took longer than `timeout_seconds`.
        """
        if self.import_seconds is None and _readable(self._channel):
            message = self._receive()
            if "ready" not in message:
                self._raise_dead()
            self.import_seconds, self.threads = message["ready"], message["threads"]
        if self.import_seconds is None and time.monotonic() > self._deadline:
            raise NoProgressError("the warm parent did not finish its imports in time; see its log, warm.log")
        return self.import_seconds is not None

    def start(self, ranks: Sequence[RankStart]) -> dict[int, int]:
        for rank in ranks:
            self._send({"rank": rank.rank, "environ": rank.environ, "log": str(rank.log)})
        wanted = {rank_start.rank for rank_start in ranks}
        while not wanted <= self._living.keys() | {rank_exit.rank for rank_exit in self._exits}:
            self._take(self._receive())
            if not self.alive:
                self._raise_dead()
        return dict(self._living)

    def fork_server(self, channel: socket.socket, *, log: Path) -> int:
        """Fork the server of the rendezvous store, which reads `channel`, before any rank; returns its pid.

        Raises:
            TrainingError: The warm parent has threads, or died.
        """
        self._send({"log": str(log)}, channel.fileno())
        answer = self._receive()
        if "pid" not in answer:
            self._take(answer)
            self._raise_dead()
        return int(answer["pid"])

    def exits(self) -> list[RankExit]:
        while self.alive and _readable(self._channel):
            self._take(self._receive())
        rank_exits, self._exits = self._exits, []
        return rank_exits

    def pids(self) -> list[int]:
        return [self._process.pid]

    def handles(self) -> list[int]:
        return [self._channel.fileno()]

    def close(self) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def _take(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            self._living[message["rank"]] = message["pid"]
        elif "status" in message:
            self._living.pop(message["rank"], None)
            self._exits.append(exit_of(message["rank"], message["status"], mono=message["mono"]))
        elif "refused" in message:
            what = "the rendezvous server" if message["rank"] is None else f"rank {message['rank']}"
            raise TrainingError(f"cannot fork {what}: {message['refused']}")
        else:  # the warm parent died, and its ranks with it
            self.alive = False
            kill = signal.SIGKILL
            dead = [RankExit(rank=rank, code=128 + kill, signal=kill, mono=_now()) for rank in self._living]
            self._exits += dead
            self._living.clear()

    def _send(self, message: dict[str, Any], *handles: int) -> None:
        try:
            socket.send_fds(self._channel, [json.dumps(message).encode()], handles)
        except OSError:
            self._raise_dead()

    def _receive(self) -> dict[str, Any]:
        """Next message; empty: the warm parent closed the channel."""
        try:
            data = self._channel.recv(MESSAGE_BYTES)
        except (ConnectionError, TimeoutError):
            data = b""
        message: dict[str, Any] = json.loads(data) if data else {}
        return message

    def _raise_dead(self) -> NoReturn:
        output = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise TrainingError(
            f"the warm parent, which imports torch for the ranks, died: {output[0]}; see {self._log.name}"
        )


def _spawn(start: RankStart) -> subprocess.Popen[bytes]:
    keeper = os.getpid()
    with start.log.open("ab") as out:
        return subprocess.Popen(
            start.argv,
            cwd=start.cwd,
            env=start.environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(keeper),  # noqa: PLW1509  # a keeper has one thread
        )


def _readable(channel: socket.socket) -> bool:
    poll = select.poll()  # not select: a keeper of many nodes has more than 1,024 handles
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def _now() -> float:
    return time.monotonic()


def send(pids: Iterable[int], number: int) -> None:
    """Send signal `number` to these processes alone; those that are gone are ignored."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def has_members(leader: int) -> bool:
    """The process group of this leader still has processes that this one may signal."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, 0)
        return True
    return False


def signal_groups(leaders: Iterable[int], number: int) -> None:
    """Send signal `number` to the process groups of these leaders; groups that are gone are ignored."""
    for pid in leaders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def reap(own: Collection[int]) -> list[tuple[int, str, int]]:
    """Reap orphans that have ended: number, name and wait status; `own` are children that other code waits for."""
    ended = [(pid, name(pid)) for pid in _orphans(own) if state(pid) == "Z"]
    return [(pid, called, status) for pid, called in ended if (status := _reap_one(pid)) is not None]


def leftover_commands(own: Collection[int]) -> tuple[str, ...]:
    """Commands of processes that ended ranks left, at most MOST_LEFTOVERS; `own` as in `reap`.

    Those that end by themselves within a moment are not among them.
    """
    deadline = _now() + _LEAVE_SECONDS
    while (living := [pid for pid in _orphans(own) if state(pid) not in (None, "Z")]) and _now() < deadline:
        time.sleep(0.02)  # one that starts another program has no command for a moment
    found = islice(filter(None, map(command, living)), MOST_LEFTOVERS)
    return tuple(" ".join(words)[:_COMMAND_CHARACTERS] for words in found)


def kill_orphans(own: Collection[int]) -> None:
    """Kill and reap all processes that ended ranks left behind; `own` as in `reap`."""
    while orphans := _orphans(own):
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _reap_one(pid)


def _orphans(own: Collection[int]) -> list[int]:
    return [pid for pid in children(os.getpid()) if pid not in own]


def _reap_one(pid: int) -> int | None:
    """Wait status; None: somebody else waited for it."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, 0)[1]
    return None
