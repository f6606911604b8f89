"""Processes beside the ranks of a node: rendezvous store, uploader, warm parent, and at the end the collector."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gangline.errors import GanglineError
from gangline.spec.plan import Plan
from gangline.train.collecting import collect
from gangline.train.environment import KeeperEnvironment
from gangline.train.mirroring import Mirroring
from gangline.train.rank_starts import shared_environ
from gangline.train.reaper import end_orphans
from gangline.train.rendezvous_store import RendezvousStore
from gangline.train.starters import Spawner, Starter, WarmParent
from gangline.train.stop import StopOrder
from gangline.train.verdict import Verdict


class Waiting(Protocol):
    """The keeper, as its helpers see it."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long."""
        ...

    def own_order(self) -> StopOrder | None:
        """This node was asked to stop."""
        ...

    def event(self, event: str, **values: object) -> None: ...


class Helpers:
    def __init__(
        self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str], *, keeper: Waiting
    ) -> None:
        self._env, self._plan, self._environ, self._keeper = environment, plan, environ, keeper
        self._began = time.time()
        self._store: RendezvousStore | None = None
        self._mirroring: Mirroring | None = None
        self.starter: Starter = Spawner()

    def open(self) -> None:
        """Start the uploader, and on node 0 the process that serves rendezvous stores."""
        self._mirroring = Mirroring(self._environ, log=self._log("uploader"))
        if self._env.node_rank == 0:
            host = "127.0.0.1" if self._env.on_loopback else ""
            eager = self._plan.program.task is not None
            self._store = RendezvousStore(
                host, self._env.master_port, log=self._log("rendezvous"), eager=eager, python=self._env.rank_python,
                environ=self._env.of_ranks(self._environ),
            )  # fmt: skip

    def open_store(self) -> int:
        """A fresh rendezvous store; its port."""
        assert self._store is not None, "node 0 has it, and decides"
        return self._store.open()

    def warm_up(self) -> None:
        """Have a starter that can start: a warm parent for tasks, where forking is wanted and safe, else none."""
        self.starter.close()
        self.starter = Spawner()
        if self._plan.program.task is None or self._env.start_method == "spawn":
            return
        environ, seconds = shared_environ(self._env.of_ranks(self._environ)), self._env.limits.start
        self.starter = warm = WarmParent(
            python=self._env.rank_python, environ=environ, log=self._log("warm"), timeout_seconds=seconds
        )
        while not warm.ready() and self._keeper.own_order() is None:
            self._keeper.wait(0.5)
        self._keeper.event("warm_ready", seconds=warm.import_seconds, threads=warm.threads)
        if warm.threads > 1 and self._env.start_method == "auto":
            warm.close()
            self.starter = Spawner()

    @property
    def is_warm(self) -> bool:
        """Ranks are forked."""
        return isinstance(self.starter, WarmParent)

    @property
    def can_start(self) -> bool:
        """False: the warm parent is gone."""
        return not isinstance(self.starter, WarmParent) or self.starter.alive

    def handles(self) -> list[int]:
        """File descriptors that become readable when there is news."""
        return list(self.starter.handles())

    def pids(self) -> set[int]:
        processes = {each.process.pid for each in (self._store, self._mirroring) if each is not None}
        return processes | set(self.starter.pids())

    def close(self, verdict: Verdict) -> Verdict:
        """End them all, the uploader last; what follows if it could not finish: results in no store are no success."""
        self.starter.close()
        if self._store is not None:
            self._store.close()
        if self._mirroring is None:
            return verdict
        end_orphans({self._mirroring.process.pid})
        lost = self._collect()
        failure = self._mirroring.finish()
        self._keeper.event("uploaded", complete=failure is None, reason=str(failure or ""))
        end_orphans(())
        failure = failure or lost
        if failure is None or verdict.exit_code:
            return verdict
        reason = f"all ranks are done, but {failure}"
        return Verdict(restart=False, exit_code=failure.exit_code, retry=failure.retry, reason=reason)

    def _collect(self) -> GanglineError | None:
        """What rank 0's program wrote, where somebody asked for it and ranks ran; what went wrong."""
        if self._env.outputs is None or self._env.node_rank:
            return None
        failure = collect(self._environ, log=self._log("collector"), began=self._began, keeper=self._keeper)
        self._keeper.event("collected", complete=failure is None, reason=str(failure or ""))
        return failure

    def _log(self, name: str) -> Path:
        """Of a helper; nodes may share one folder."""
        node = f"-{self._env.node_rank}" if self._env.node_rank else ""
        return self._env.home / "logs" / f"{name}{node}.log"
