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
from gangline.keeper.ipc.signals import FINISH_SIGNAL
from gangline.keeper.logs.rank_files import last_lines
from gangline.keeper.rank_environment import shared_environ
from gangline.keeper.ranks.rank_processes import Spawner, Starter, WarmParent, kill_orphans
from gangline.keeper.ranks.rendezvous_store import RendezvousStore
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.plan import Plan

_LAST_SECONDS = 75.0
"""Time for the uploader to finish; longer than its own limit."""
STOPPED_SECONDS = 60.0
"""Time for the collector after a stop request; without one it takes as long as its files need."""


class HelperHost(Protocol):
    """The keeper, as its helper processes use it."""

    def wait(self, seconds: float) -> None:
        """Sleep until an event of the keeper, for at most `seconds`."""
        ...

    def own_stop_request(self) -> StopRequest | None:
        """Stop request to this node."""
        ...

    def event(self, event: str, **values: object) -> None:
        """Write an event to the keeper's journal."""
        ...


class UploaderProcess:
    """The process that mirrors the output folder to the store."""

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
        """Wait for the last upload; the error if it failed."""
        self.process.send_signal(FINISH_SIGNAL)
        try:
            code = self.process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return StorageError(
                "the last upload of the output took too long; the missing files are in the gang's out folder"
            )
        if code == 0:
            return None
        text = " ".join(last_lines(self._log, 1))
        return error_for(code)(f"cannot upload its output to the store: {text}; it is in the gang's out folder")


def _block_stop_signals() -> None:
    """Have an early stop signal wait until the uploader handles it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, FINISH_SIGNAL})


def run_collector(environ: Mapping[str, str], *, log: Path, began: float, keeper: HelperHost) -> GanglineError | None:
    """Run the collector to its end; the error if it failed.

    `began`: seconds since the epoch, before any rank ran and after the code was unpacked.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.keeper.transfer.collector", str(os.getpid()), str(began)],
            env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    deadline: float | None = None
    while (code := process.poll()) is None:
        keeper.wait(0.5)
        if deadline is None and keeper.own_stop_request() is not None:
            deadline = time.monotonic() + STOPPED_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            process.kill()
            process.wait()
            return StorageError(f"cannot collect its outputs within {STOPPED_SECONDS:.0f} s of the stop request")
    if code == 0:
        return None
    text = " ".join(last_lines(log, 1))
    return error_for(code)(f"cannot collect its outputs: {text}; they are in the gang's code folder")


class HelperProcesses:
    """The helper processes of one keeper, and the starter of its ranks."""

    def __init__(
        self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str], *, keeper: HelperHost
    ) -> None:
        self._env, self._plan, self._environ, self._keeper = environment, plan, environ, keeper
        self._began = time.time()
        self._store: RendezvousStore | None = None
        self._uploader: UploaderProcess | None = None
        self.starter: Starter = Spawner()

    def open(self) -> None:
        """Start the uploader, and on node 0 the process that serves rendezvous stores, unless it will be forked."""
        self._uploader = UploaderProcess(self._environ, log=self._log("uploader"))
        if self._env.node_rank == 0 and not self._wants_forks:
            self._store = self._start_store()

    def open_store(self) -> int:
        """Open a new rendezvous store; returns its port. Only node 0 opens stores."""
        if self._store is None:
            self._store = self._start_store()
        return self._store.open()

    def _start_store(self) -> RendezvousStore:
        """Fork its server from a warm parent that is ready; without one it is a fresh process."""
        starter = self.starter
        warm = starter if isinstance(starter, WarmParent) and starter.import_seconds is not None else None
        return RendezvousStore(
            "127.0.0.1" if self._env.on_loopback else "", self._env.master_port, log=self._log("rendezvous"),
            eager=self._plan.program.task is not None, python=self._env.rank_python,
            environ=self._env.of_ranks(self._environ), warm=warm,
        )  # fmt: skip

    @property
    def _wants_forks(self) -> bool:
        return self._plan.program.task is not None and self._env.start_method != "spawn"

    def warm_up(self) -> None:
        """Make a new starter: a warm parent for tasks if forking is wanted and safe, otherwise fresh processes."""
        self.starter.close()
        self.starter = Spawner()
        if not self._wants_forks:
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
        """File descriptors that become readable when a rank ended."""
        return list(self.starter.handles())

    def pids(self) -> set[int]:
        store = {self._store.pid} if self._store is not None else set()
        uploader = {self._uploader.process.pid} if self._uploader is not None else set()
        return store | uploader | set(self.starter.pids())

    def close(self, decision: RestartDecision) -> RestartDecision:
        """End all helpers, the uploader last; a success becomes a failure if results did not reach the store."""
        self.starter.close()
        if self._store is not None:
            self._store.close()
        if self._uploader is None:
            return decision
        kill_orphans({self._uploader.process.pid})
        collect_error = self._collect()
        failure = self._uploader.finish()
        self._keeper.event("uploaded", complete=failure is None, reason=str(failure or ""))
        kill_orphans(())
        failure = failure or collect_error
        if failure is None or decision.exit_code:
            return decision
        reason = f"all ranks are done, but {failure}"
        return RestartDecision(restart=False, exit_code=failure.exit_code, retry=failure.retry, reason=reason)

    def _collect(self) -> GanglineError | None:
        """Collect output files if the line asks for them, on node 0; the error if that failed."""
        if self._env.outputs is None or self._env.node_rank:
            return None
        failure = run_collector(self._environ, log=self._log("collector"), began=self._began, keeper=self._keeper)
        self._keeper.event("collected", complete=failure is None, reason=str(failure or ""))
        return failure

    def _log(self, name: str) -> Path:
        """Log of a helper; nodes may share one folder."""
        node = f"-{self._env.node_rank}" if self._env.node_rank else ""
        return self._env.home / "logs" / f"{name}{node}.log"
