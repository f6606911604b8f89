"""One node's part of a gang: helpers, then one generation of ranks after another, then the last word.

Which generation, and whether there is another, its company decides.
"""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.errors import GanglineError
from gangline.spec.gang import GangEnd, GangState
from gangline.spec.plan import Plan
from gangline.train.ending import gang_end, spans_of
from gangline.train.environment import KeeperEnvironment
from gangline.train.exit_codes import RankExit, read_oom_kills
from gangline.train.generation import Generation
from gangline.train.keeper_ledger import Span
from gangline.train.loop.watchdog import Hang
from gangline.train.mirroring import Mirroring
from gangline.train.outcome import Halt, Outcome
from gangline.train.outside import Outside
from gangline.train.peers.company import Company, Start
from gangline.train.peers.join import company_of
from gangline.train.peers.reports import LOG_LINES, Report, report_of
from gangline.train.rank_files import last_lines, last_word
from gangline.train.rank_starts import rank_starts, shared_environ
from gangline.train.reaper import end_orphans
from gangline.train.rendezvous_store import RendezvousStore
from gangline.train.starters import Spawner, Starter, WarmParent
from gangline.train.stop import StopOrder, StopWatch
from gangline.train.verdict import Verdict


class Keeper:
    """One node's part of a gang, from its start to its exit file."""

    def __init__(self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> None:
        self._env, self._plan, self._environ = environment, plan, dict(environ)
        self._start = time.monotonic()
        self._outside = Outside(environment)
        seconds = environment.deadline_seconds
        deadline = None if seconds is None else self._start + seconds
        self._stop = StopWatch(environment.home, deadline=deadline, deadline_seconds=seconds)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._turn = Start(generation=0, port=0)
        self._reason = ""
        self._gathered: float | None = None
        self._outcome: Outcome | None = None
        self._spans: list[Span] = []
        self._store: RendezvousStore | None = None
        self._mirroring: Mirroring | None = None
        self._starter: Starter = Spawner()
        self._company: Company | None = None

    def run(self) -> GangEnd:
        """Returns how the gang ended; it is on disk by then, and no process is left."""
        self.changed("starting", {}, ())
        try:
            self._mirroring = Mirroring(self._environ, log=self._log("uploader"))
            self._store = self._open_store()
            self._company = company_of(self._env, self, max_events=self._plan.recovery.max_events)
            self._starter = self._first_starter()
            verdict = self._generations(self._company)
        except GanglineError as error:
            verdict = Verdict(restart=False, exit_code=error.exit_code, retry=error.retry, reason=str(error))
        return self._finish(verdict)

    # -- what a generation asks of its host

    def wait(self, seconds: float) -> None:
        poll = select.poll()
        company = self._company.handles() if self._company else []
        for handle in (self._woken, *self._starter.handles(), *company, *self._outside.handles()):
            poll.register(handle, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        if self._company is not None:
            self._company.pump()
        self._outside.tidy()

    def order(self) -> StopOrder | None:
        own = self.own_order()
        return self._company.order(own) if self._company else own

    def halt(self) -> Halt | None:
        return self._company.halt() if self._company else None

    def failing(self, failed: RankExit | None, hang: Hang | None) -> None:
        if self._company is not None:
            secondary = failed is not None and failed.is_secondary
            self._company.failing(secondary=secondary, hangs=hang is not None)

    def own_pids(self) -> set[int]:
        """Children that are no ranks."""
        helpers = (self._store, self._mirroring)
        return {helper.process.pid for helper in helpers if helper is not None} | set(self._starter.pids())

    def changed(self, state: GangState, ranks: Mapping[int, int], joined: Sequence[int]) -> None:
        self._outside.status(state, turn=self._turn, ranks=ranks, joined=joined, reason=self._reason)

    def event(self, event: str, **values: object) -> None:
        self._outside.event(event, **values)

    # -- what its company asks of a keeper

    def own_order(self) -> StopOrder | None:
        return self._stop.order(time.monotonic())

    def open_store(self) -> int:
        assert self._store is not None, "node 0 has it, and decides"
        return self._store.open()

    def waits(self, reason: str) -> None:
        self._reason = reason
        self.changed("starting", {}, ())

    # -- the course of a gang

    def _open_store(self) -> RendezvousStore | None:
        if self._env.node_rank:
            return None
        host = "127.0.0.1" if self._env.on_loopback else ""
        eager = self._plan.program.task is not None
        return RendezvousStore(host, self._env.master_port, log=self._log("rendezvous"), eager=eager)

    def _first_starter(self) -> Starter:
        """A warm parent for tasks, where forking is wanted and safe; fresh processes for all else."""
        if self._plan.program.task is None or self._env.start_method == "spawn":
            return Spawner()
        environ = shared_environ(self._environ)
        warm = WarmParent(environ=environ, log=self._log("warm"), timeout_seconds=self._env.limits.start)
        self._starter = warm
        while not warm.ready() and self.own_order() is None:
            self.wait(0.5)
        self.event("warm_ready", seconds=warm.import_seconds, threads=warm.threads)
        if warm.threads > 1 and self._env.start_method == "auto":
            warm.close()
            return Spawner()
        return warm

    def _generations(self, company: Company) -> Verdict:
        last: Report | None = None
        while True:
            turn = company.next(last)
            if isinstance(turn, Verdict):
                return turn
            self._turn, self._reason = turn, turn.reason
            if self._gathered is None and self._env.num_nodes > 1:
                self._gathered = time.monotonic()
            last = self._run_generation(turn)

    def _run_generation(self, turn: Start) -> Report:
        began = time.monotonic()
        if isinstance(self._starter, WarmParent) and not self._starter.alive:
            self._starter.close()
            self._starter = self._first_starter()
        self.event("generation_started", generation=turn.generation, world_size=self._env.world_size, port=turn.port)
        starts = rank_starts(
            self._env,
            self._plan,
            self._environ,
            generation=turn.generation,
            port=turn.port,
            fork=isinstance(self._starter, WarmParent),
        )
        oom_kills = read_oom_kills()
        generation = Generation(
            number=turn.generation,
            starter=self._starter,
            host=self,
            heartbeats=self._env.home / "heartbeat",
            limits=self._env.limits,
            must_beat=self._plan.program.task is not None,
            grace_seconds=self._env.grace_seconds,
        )
        self._outcome = outcome = generation.run(starts)
        self._spans += spans_of(outcome, generation=turn.generation, events=self._env.out / "ranks")
        killed = (read_oom_kills() or 0) - (oom_kills or 0)
        word, log = self._words_of(outcome)
        return report_of(outcome, generation=turn.generation, began=began, oom_kills=killed, word=word, log=log)

    def _words_of(self, outcome: Outcome) -> tuple[str, list[str]]:
        """What the failed rank said that it ended of, and the last lines of its log."""
        culprit = outcome.failed or outcome.hang
        if culprit is None:
            return "", []
        word = last_word(self._env.out / "ranks" / f"{culprit.rank}.jsonl", self._turn.generation)
        return word, last_lines(self._env.home / "logs" / f"{culprit.rank}.log", LOG_LINES)

    # -- its end

    def _finish(self, verdict: Verdict) -> GangEnd:
        self._reason = verdict.reason
        self.changed("stopping", {}, ())
        if self._company is not None:
            self._company.close(verdict)
        self._starter.close()
        if self._store is not None:
            self._store.close()
        verdict = self._mirror_the_rest(verdict)
        if self._mirroring is not None:
            end_orphans(())
        self.event("ended", exit_code=verdict.exit_code)
        end = gang_end(
            verdict,
            (self._company.outcome if self._company else None) or self._outcome,
            environment=self._env,
            generation=self._turn.generation,
            restarts=self._turn.restarts,
            spans=self._spans,
            wall=(self._start, time.monotonic()),
            gathered=self._gathered,
        )
        self.changed("ended", {}, ())
        self._outside.end(end)
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
        """Of a helper; nodes may share one folder."""
        node = f"-{self._env.node_rank}" if self._env.node_rank else ""
        return self._env.home / "logs" / f"{name}{node}.log"
