"""One node's part of a gang: helpers, then one generation of ranks after another, then the last word."""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.errors import GanglineError
from gangline.procfs import start_time
from gangline.spec.gang import GangEnd, GangState, KeeperStatus
from gangline.spec.plan import Plan
from gangline.train.budget import RestartBudget
from gangline.train.ending import gang_end, spans_of
from gangline.train.environment import KeeperEnvironment
from gangline.train.exit_codes import read_oom_kills
from gangline.train.generation import Generation, Outcome
from gangline.train.journal import Journal
from gangline.train.keeper_ledger import Span
from gangline.train.mirroring import Mirroring
from gangline.train.rank_files import last_word
from gangline.train.rank_starts import rank_starts, shared_environ
from gangline.train.reaper import end_orphans
from gangline.train.rendezvous_store import RendezvousStore
from gangline.train.starters import Spawner, Starter, WarmParent
from gangline.train.stop import StopOrder, StopWatch
from gangline.train.verdict import Verdict, judge


class Keeper:
    """One node's part of a gang, from its start to its exit file."""

    def __init__(self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> None:
        self._env, self._plan, self._environ = environment, plan, dict(environ)
        self._start = time.monotonic()
        self._journal = Journal(environment.home, environment.node_rank)
        seconds = environment.deadline_seconds
        deadline = None if seconds is None else self._start + seconds
        self._stop = StopWatch(environment.home, deadline=deadline, deadline_seconds=seconds)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._budget = RestartBudget(plan.recovery.max_events)
        self._generation = 0
        self._restarts = 0
        self._reason = ""
        self._spans: list[Span] = []
        self._store: RendezvousStore | None = None
        self._mirroring: Mirroring | None = None
        self._starter: Starter = Spawner()

    def run(self) -> GangEnd:
        """Returns how the gang ended; it is on disk by then, and no process is left."""
        self.changed("starting", {}, ())
        outcome: Outcome | None = None
        try:
            self._mirroring = Mirroring(self._environ, log=self._log("uploader"))
            self._store = self._open_store()
            self._starter = self._first_starter()
            while True:
                outcome, verdict = self._next_generation()
                if not verdict.restart:
                    break
                self._restart(verdict)
        except GanglineError as error:
            verdict = Verdict(restart=False, exit_code=error.exit_code, retry=error.retry, reason=str(error))
        return self._finish(verdict, outcome)

    # -- what a generation asks of its host

    def wait(self, seconds: float) -> None:
        with suppress(InterruptedError):
            select.select([self._woken, *self._starter.handles()], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def order(self) -> StopOrder | None:
        return self._stop.order(time.monotonic())

    def own_pids(self) -> set[int]:
        """Children that are no ranks."""
        helpers = (self._store, self._mirroring)
        return {helper.process.pid for helper in helpers if helper is not None} | set(self._starter.pids())

    def changed(self, state: GangState, ranks: Mapping[int, int], joined: Sequence[int]) -> None:
        self._journal.status(
            KeeperStatus(
                node_rank=self._env.node_rank,
                pid=os.getpid(),
                start_time=start_time(os.getpid()) or 0,
                state=state,
                generation=self._generation,
                restarts=self._restarts,
                ranks={str(rank): pid for rank, pid in ranks.items()},
                joined=tuple(joined),
                reason=self._reason,
            )
        )

    def event(self, event: str, **values: object) -> None:
        self._journal.event(event, **values)

    # -- the course of a gang

    def _open_store(self) -> RendezvousStore | None:
        if self._env.node_rank:
            return None
        host = "127.0.0.1" if self._env.master_addr in ("127.0.0.1", "localhost") else ""
        eager = self._plan.program.task is not None
        return RendezvousStore(host, self._env.master_port, log=self._log("rendezvous"), eager=eager)

    def _first_starter(self) -> Starter:
        """A warm parent for tasks, where forking is wanted and safe; fresh processes for all else."""
        if self._plan.program.task is None or self._env.start_method == "spawn":
            return Spawner()
        environ = shared_environ(self._environ)
        warm = WarmParent(environ=environ, log=self._log("warm"), timeout_seconds=self._env.limits.start)
        self._starter = warm
        while not warm.ready() and self.order() is None:
            self.wait(0.5)
        self.event("warm_ready", seconds=warm.import_seconds, threads=warm.threads)
        if warm.threads > 1 and self._env.start_method == "auto":
            warm.close()
            return Spawner()
        return warm

    def _next_generation(self) -> tuple[Outcome | None, Verdict]:
        if isinstance(self._starter, WarmParent) and not self._starter.alive:
            self._starter.close()
            self._starter = self._first_starter()
        if order := self.order():
            reason = f"{order.reason}, before the ranks of generation {self._generation} started"
            return None, Verdict(restart=False, exit_code=order.exit_code, retry="never", reason=reason)
        port = self._store.open() if self._store else self._env.master_port
        self.event("generation_started", generation=self._generation, world_size=self._env.world_size, port=port)
        starts = rank_starts(
            self._env,
            self._plan,
            self._environ,
            generation=self._generation,
            port=port,
            fork=isinstance(self._starter, WarmParent),
        )
        oom_kills = read_oom_kills()
        generation = Generation(
            number=self._generation,
            starter=self._starter,
            host=self,
            heartbeats=self._env.home / "heartbeat",
            limits=self._env.limits,
            must_beat=self._plan.program.task is not None,
            grace_seconds=self._env.grace_seconds,
        )
        outcome = generation.run(starts)
        self._spans += spans_of(outcome, generation=self._generation, events=self._env.out / "ranks")
        died = outcome.failed.mono if outcome.failed else time.monotonic()
        killed = (read_oom_kills() or 0) - (oom_kills or 0)
        return outcome, judge(outcome, self._budget, oom_kills=killed, now=died, word=self._word_of(outcome))

    def _word_of(self, outcome: Outcome) -> str:
        if outcome.failed is None:
            return ""
        return last_word(self._env.out / "ranks" / f"{outcome.failed.rank}.jsonl", self._generation)

    def _restart(self, verdict: Verdict) -> None:
        self._generation += 1
        self._restarts += 1
        self._reason = verdict.reason
        self.event("restart", reason=verdict.reason, charged=verdict.charged, generation=self._generation)
        self.changed("starting", {}, ())
        patience = time.monotonic() + verdict.pause_seconds
        while time.monotonic() < patience and self.order() is None:
            self.wait(patience - time.monotonic())

    # -- its end

    def _finish(self, verdict: Verdict, outcome: Outcome | None) -> GangEnd:
        self._reason = verdict.reason
        self.changed("stopping", {}, ())
        self._starter.close()
        if self._store is not None:
            self._store.close()
        verdict = self._mirror_the_rest(verdict)
        if self._mirroring is not None:
            end_orphans(())
        self.event("ended", exit_code=verdict.exit_code)
        end = gang_end(
            verdict,
            outcome,
            environment=self._env,
            generation=self._generation,
            restarts=self._restarts,
            spans=self._spans,
            wall=(self._start, time.monotonic()),
        )
        self.changed("ended", {}, ())
        self._journal.end(end)
        return end

    def _mirror_the_rest(self, verdict: Verdict) -> Verdict:
        """Results that reach no store are no success."""
        if self._mirroring is None:
            return verdict
        failure = self._mirroring.finish()
        self.event("uploaded", complete=failure is None, reason=str(failure or ""))
        if failure is None or verdict.exit_code:
            return verdict
        reason = f"all ranks are done, but {failure}"
        return Verdict(restart=False, exit_code=failure.exit_code, retry=failure.retry, reason=reason)

    def _log(self, name: str) -> Path:
        return self._env.home / "logs" / f"{name}.log"
