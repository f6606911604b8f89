"""Status of a node as others see it: journal, output of the pod, readiness port, size of the logs."""

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
    def __init__(self, port: int | None) -> None:
        """`port` None: nobody asks."""
        self._port = port
        self._listener: socket.socket | None = None
        self.problem = ""
        """Why it cannot be listened on; the training goes on without."""

    def set(self, ready: bool) -> None:
        if ready and self._listener is None and self._port is not None:
            self._listen(self._port)
        elif not ready and self._listener is not None:
            self._listener.close()
            self._listener = None

    def pump(self) -> None:
        """Take and drop who asked, so that no queue fills; never waits."""
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


LOGS_SECONDS = 0.5
"""Between looks at how long logs are."""
DRAIN_SECONDS = 5.0
"""For the last words of a pod."""


class NodeStatus:
    def __init__(self, environment: KeeperEnvironment, ranks: Sequence[int], *, secrets: Sequence[str]) -> None:
        """`ranks`: all that this node may ever have; `secrets`: what no log is to show."""
        env, self._secrets = environment, secrets
        self._env = env
        speaks = env.termination_log is not None
        self._speaker = PodLog(env.node_rank, ranks, home=env.home, secrets=secrets) if speaks else None
        self._journal = Journal(env.home, env.node_rank, speaker=self._speaker)
        self._readiness = ReadinessPort(env.ready_port)
        self._logs = [env.home / "logs" / f"{rank}.log" for rank in ranks]
        self._logs_seen = 0.0

    def event(self, event: str, **values: object) -> None:
        self._journal.event(event, **values)

    def status(
        self, state: GangState, *, turn: GenerationStart, ranks: Mapping[int, int], joined: Sequence[int], reason: str
    ) -> None:
        """Tell it where it changed; the node is ready while all its ranks have joined."""
        shape = turn.shape
        own = self._env.local_world_size if shape is None else len(shape.ranks(self._env.node_rank))
        self._readiness.set(state == "running" and len(joined) == own)
        self._journal.status(
            KeeperStatus(
                node_rank=self._env.node_rank,
                pid=os.getpid(),
                start_time=start_time(os.getpid()) or 0,
                state=state,
                generation=turn.generation,
                restarts=turn.restarts,
                ranks={str(rank): pid for rank, pid in ranks.items()},
                joined=tuple(joined),
                world_size=0 if shape is None else shape.world_size,
                reason=reason,
            )
        )

    def handles(self) -> list[int]:
        """File descriptors that become readable when `tidy` has something to do."""
        return self._readiness.handles()

    def tidy(self) -> None:
        """What has to be done again and again, whatever happens else; never waits."""
        self._readiness.pump()
        if self._speaker is not None:
            self._speaker.pump()
        if time.monotonic() - self._logs_seen >= LOGS_SECONDS:
            self._logs_seen = time.monotonic()
            log_files.rotate(self._logs)

    def conceal(self) -> None:
        """Take secrets out of the logs; once all ranks have ended."""
        log_files.conceal_secrets(self._logs, [each.encode() for each in self._secrets])

    def end(self, end: GangEnd) -> None:
        """The last word, wherever somebody looks for it; durable when it returns."""
        if self._speaker is not None:
            self._speaker.drain(DRAIN_SECONDS)
        write_termination_message(end, self._env.termination_log)
        self._journal.end(end)
