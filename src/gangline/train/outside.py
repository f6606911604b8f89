"""What the world outside sees of a node: its journal, in a pod its voice and readiness too, logs that stay small."""

import os
import time
from collections.abc import Mapping, Sequence

from gangline.procfs import start_time
from gangline.spec.gang import GangEnd, GangState, KeeperStatus
from gangline.train import log_files
from gangline.train.environment import KeeperEnvironment
from gangline.train.journal import Journal
from gangline.train.last_word import leave_message
from gangline.train.peers.company import Start
from gangline.train.readiness import Readiness
from gangline.train.saying import Speaker

LOGS_SECONDS = 0.5
"""Between looks at how long logs are."""
SPEAK_SECONDS = 5.0
"""For the last words of a pod."""


class Outside:
    def __init__(self, environment: KeeperEnvironment, ranks: Sequence[int], *, secrets: Sequence[str]) -> None:
        """`ranks`: all that this node may ever have; `secrets`: what no log is to show."""
        env, self._secrets = environment, secrets
        self._env = env
        speaks = env.termination_log is not None
        self._speaker = Speaker(env.node_rank, ranks, home=env.home, secrets=secrets) if speaks else None
        self._journal = Journal(env.home, env.node_rank, speaker=self._speaker)
        self._readiness = Readiness(env.ready_port)
        self._logs = [env.home / "logs" / f"{rank}.log" for rank in ranks]
        self._logs_seen = 0.0

    def event(self, event: str, **values: object) -> None:
        self._journal.event(event, **values)

    def status(
        self, state: GangState, *, turn: Start, ranks: Mapping[int, int], joined: Sequence[int], reason: str
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
            log_files.bound(self._logs)

    def conceal(self) -> None:
        """Take secrets out of the logs; once all ranks have ended."""
        log_files.conceal(self._logs, [each.encode() for each in self._secrets])

    def end(self, end: GangEnd) -> None:
        """The last word, wherever somebody looks for it; durable when it returns."""
        if self._speaker is not None:
            self._speaker.drain(SPEAK_SECONDS)
        leave_message(end, self._env.termination_log)
        self._journal.end(end)
