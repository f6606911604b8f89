"""Status of a node for the outside: journal, output of the pod, readiness port, size of the logs."""

import os
import socket
import time
from collections.abc import Mapping, Sequence

from gangline.keeper.coordination.protocol import GenerationStart
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.logs import log_files
from gangline.keeper.logs.journal import Journal, write_termination_message
from gangline.keeper.logs.pod_log import PodLog
from gangline.procfs import start_time
from gangline.spec.gang.status import GangEnd, GangState, KeeperStatus


class ReadinessPort:
    """TCP port that accepts connections while the node is ready."""

    def __init__(self, port: int | None) -> None:
        """`port` None: there is no such port."""
        self._port = port
        self._listener: socket.socket | None = None
        self.problem = ""
        """Why the port cannot be opened; the training continues without it."""

    def set(self, ready: bool) -> None:
        """Open or close the port; a port that cannot be opened sets `problem`."""
        if ready and self._listener is None and self._port is not None:
            self._listen(self._port)
        elif not ready and self._listener is not None:
            self._listener.close()
            self._listener = None

    def poll(self) -> None:
        """Accept and close connections, so that the queue does not fill; never waits."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.close()

    def handles(self) -> list[int]:
        return [self._listener.fileno()] if self._listener is not None else []

    def _listen(self, port: int) -> None:
        try:
            self._listener = socket.create_server(("", port), backlog=64)
        except OSError as error:
            self.problem = f"port {port}: {error.strerror}"
            return
        self.problem = ""
        self._listener.setblocking(False)


ROTATE_SECONDS = 0.5
"""Interval of checks for log rotation."""
DRAIN_SECONDS = 5.0
"""Time to write the remaining output of a pod."""


class NodeStatus:
    """Reports what a node does, wherever it is read."""

    def __init__(self, environment: KeeperEnvironment, ranks: Sequence[int], *, secrets: Sequence[str]) -> None:
        """`ranks`: all that this node may have; `secrets`: values to remove from logs."""
        env, self._secrets = environment, secrets
        self._env = env
        is_pod = env.termination_log is not None
        self._pod_log = PodLog(env.node_rank, ranks, home=env.home, secrets=secrets) if is_pod else None
        self._journal = Journal(env.home, env.node_rank, pod_log=self._pod_log)
        self._readiness = ReadinessPort(env.ready_port)
        self._logs = [env.home / "logs" / f"{rank}.log" for rank in ranks]
        self._logs_checked = 0.0

    def event(self, event: str, **values: object) -> None:
        """Write an event to the journal."""
        self._journal.event(event, **values)

    def update(
        self, state: GangState, *, start: GenerationStart, ranks: Mapping[int, int], joined: Sequence[int], reason: str
    ) -> None:
        """Write the status if it changed; the node is ready while all its ranks have joined."""
        shape = start.shape
        own = self._env.local_world_size if shape is None else len(shape.ranks(self._env.node_rank))
        self._readiness.set(state == "running" and len(joined) == own)
        self._journal.status(
            KeeperStatus(
                node_rank=self._env.node_rank,
                pid=os.getpid(),
                start_time=start_time(os.getpid()) or 0,
                state=state,
                generation=start.generation,
                restarts=start.restarts,
                ranks={str(rank): pid for rank, pid in ranks.items()},
                joined=tuple(joined),
                world_size=0 if shape is None else shape.world_size,
                reason=reason,
            )
        )

    def handles(self) -> list[int]:
        """File descriptors that become readable when `poll` has something to do."""
        return self._readiness.handles()

    def poll(self) -> None:
        """Serve the readiness port, write output of the pod, rotate logs; never waits."""
        self._readiness.poll()
        if self._pod_log is not None:
            self._pod_log.poll()
        if time.monotonic() - self._logs_checked >= ROTATE_SECONDS:
            self._logs_checked = time.monotonic()
            log_files.rotate(self._logs)

    def redact_logs(self) -> None:
        """Remove secrets from the logs, after all ranks have ended."""
        log_files.redact(self._logs, [secret.encode() for secret in self._secrets])

    def end(self, end: GangEnd) -> None:
        """Write the exit file and the termination message; durable when it returns."""
        if self._pod_log is not None:
            self._pod_log.drain(DRAIN_SECONDS)
        write_termination_message(end, self._env.termination_log)
        self._journal.end(end)
