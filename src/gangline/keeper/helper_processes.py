"""Helper processes of a node: rendezvous store, warm parent, uploader, and the collector at the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gangline.errors import GanglineError, StorageError, error_for
from gangline.keeper.coordination.restart_policy import RestartDecision
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.logs.rank_files import last_lines
from gangline.keeper.rank_environment import shared_environ
from gangline.keeper.ranks.rank_processes import Spawner, Starter, WarmParent
from gangline.keeper.ranks.reaper import end_orphans
from gangline.keeper.ranks.rendezvous_store import RendezvousStore
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.plan import Plan

_LAST_SECONDS = 75.0
"""Longer than the uploader tries."""


class UploaderProcess:
    def __init__(self, environ: Mapping[str, str], *, log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gangline.keeper.transfer.uploader", str(os.getpid())],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=_block_stop_signals,  # noqa: PLW1509  # a keeper has one thread
            )

    def finish(self) -> GanglineError | None:
        """Wait for the last round; what went wrong, in a sentence."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return StorageError(
                "the last round of mirroring took too long; what is missing lies in the gang's out folder"
            )
        if code == 0:
            return None
        words = " ".join(last_lines(self._log, 1))
        return error_for(code)(
            f"its output could not be mirrored to the store: {words}; it lies in the gang's out folder"
        )


def _block_stop_signals() -> None:
    """An early request to stop then waits until the uploader listens."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})


STOPPED_SECONDS = 60.0
"""What a gang that was asked to stop may take; one that nobody stops takes as long as its files need."""


class CollectorHost(Protocol):
    """The keeper, as it is seen here."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long."""
        ...

    def own_stop_request(self) -> StopRequest | None:
        """This node was asked to stop."""
        ...


def run_collector(
    environ: Mapping[str, str], *, log: Path, began: float, keeper: CollectorHost
) -> GanglineError | None:
    """Have all collected that ranks left; what went wrong, in a sentence.

    `began`: seconds since the epoch, before any rank ran and after the code was laid out.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.keeper.transfer.collector", str(os.getpid()), str(began)],
            env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    until: float | None = None
    while (code := process.poll()) is None:
        keeper.wait(0.5)
        if until is None and keeper.own_stop_request() is not None:
            until = time.monotonic() + STOPPED_SECONDS
        if until is not None and time.monotonic() > until:
            process.kill()
            process.wait()
            return StorageError(f"its outputs could not be collected within {STOPPED_SECONDS:.0f} s of the stop")
    if code == 0:
        return None
    words = " ".join(last_lines(log, 1))
    return error_for(code)(f"its outputs could not be collected: {words}; they lie in the gang's code folder")


class HelperHost(Protocol):
    """The keeper, as its helpers see it."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is news or so long."""
        ...

    def own_stop_request(self) -> StopRequest | None:
        """This node was asked to stop."""
        ...

    def event(self, event: str, **values: object) -> None: ...


class HelperProcesses:
    def __init__(
        self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str], *, keeper: HelperHost
    ) -> None:
        self._env, self._plan, self._environ, self._keeper = environment, plan, environ, keeper
        self._began = time.time()
        self._store: RendezvousStore | None = None
        self._mirroring: UploaderProcess | None = None
        self.starter: Starter = Spawner()

    def open(self) -> None:
        """Start the uploader, and on node 0 the process that serves rendezvous stores."""
        self._mirroring = UploaderProcess(self._environ, log=self._log("uploader"))
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
        while not warm.ready() and self._keeper.own_stop_request() is None:
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

    def close(self, verdict: RestartDecision) -> RestartDecision:
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
        return RestartDecision(restart=False, exit_code=failure.exit_code, retry=failure.retry, reason=reason)

    def _collect(self) -> GanglineError | None:
        """What rank 0's program wrote, where somebody asked for it and ranks ran; what went wrong."""
        if self._env.outputs is None or self._env.node_rank:
            return None
        failure = run_collector(self._environ, log=self._log("collector"), began=self._began, keeper=self._keeper)
        self._keeper.event("collected", complete=failure is None, reason=str(failure or ""))
        return failure

    def _log(self, name: str) -> Path:
        """Of a helper; nodes may share one folder."""
        node = f"-{self._env.node_rank}" if self._env.node_rank else ""
        return self._env.home / "logs" / f"{name}{node}.log"
