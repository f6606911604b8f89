"""One node's part of a gang: helpers, then one generation of ranks after another, then the last word.

Which generation, and whether there is another, its company decides.
"""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gangline.errors import GanglineError
from gangline.sanitize import conceal
from gangline.spec.gang import GangEnd, GangState
from gangline.spec.plan import Plan
from gangline.train.ending import gang_end, spans_of
from gangline.train.environment import KeeperEnvironment
from gangline.train.evict import Eviction, read_eviction
from gangline.train.exit_codes import RankExit, read_oom_kills
from gangline.train.generation import Generation, Replacements
from gangline.train.helpers import Helpers
from gangline.train.keeper_ledger import Span
from gangline.train.live.order import MeetAgain, forget, is_live, tell
from gangline.train.outcome import Halt, Outcome
from gangline.train.outside import Outside
from gangline.train.parting import parting_line
from gangline.train.peers.company import Company, Start
from gangline.train.peers.join import company_of
from gangline.train.peers.reports import LOG_LINES, Report, report_of
from gangline.train.peers.shape import Shape
from gangline.train.rank_files import last_lines, last_word
from gangline.train.rank_starts import rank_starts
from gangline.train.resize import ResizeWish
from gangline.train.secret_variables import secret_values
from gangline.train.starters import RankStart
from gangline.train.stop import StopOrder, StopWatch
from gangline.train.verdict import Verdict
from gangline.train.watchdog import Hang


class Keeper:
    """One node's part of a gang, from its start to its exit file."""

    def __init__(self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> None:
        self._env, self._plan, self._environ = environment, plan, dict(environ)
        self._start = time.monotonic()
        secrets = secret_values(self._environ)
        self._outside = Outside(environment, _possible_ranks(environment, plan), secrets=secrets)
        seconds = environment.deadline_seconds
        deadline = None if seconds is None else self._start + seconds
        self._stop = StopWatch(environment.home, deadline=deadline, deadline_seconds=seconds)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._turn = Start(generation=0, port=0)
        self._wish = ResizeWish(environment.home)
        self._reason = ""
        self._gathered: float | None = None
        self._outcome: Outcome | None = None
        self._spans: list[Span] = []
        self._oom_kills = 0
        self._helpers = Helpers(environment, plan, self._environ, keeper=self)
        self._company: Company | None = None

    def run(self) -> GangEnd:
        """Returns how the gang ended; it is on disk by then, and no process is left."""
        self.changed("starting", {}, ())
        forget(self._env.home)
        try:
            self._helpers.open()
            self._company = company_of(self._env, self, self._plan)
            self._helpers.warm_up()
            verdict = self._generations(self._company)
        except GanglineError as error:
            verdict = Verdict(restart=False, exit_code=error.exit_code, retry=error.retry, reason=str(error))
        return self._finish(verdict)

    # -- what a generation asks of its host

    def wait(self, seconds: float) -> None:
        poll = select.poll()
        company = self._company.handles() if self._company else []
        for handle in (self._woken, *self._helpers.handles(), *company, *self._outside.handles()):
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

    def replacements(self, dead: Sequence[RankExit], started: Mapping[int, float]) -> Replacements | None:
        if not self._is_live() or self._company is None or self.order() is not None:
            return None
        turn = self._company.replace(dead, oom_kills=self._killed_for_memory())
        if turn is None:
            return None
        starts = self._starts(turn)
        self._spans += spans_of(
            dead, started, generation=self._turn.generation, events=self._env.out / "ranks",
            first=min(each.rank for each in starts),
        )  # fmt: skip
        self._turn, self._reason = turn, turn.reason
        tell(self._env.home, MeetAgain(generation=turn.generation, port=turn.port))
        lost = {each.rank for each in dead}
        return Replacements(generation=turn.generation, starts=tuple(each for each in starts if each.rank in lost))

    def failing(self, failed: RankExit | None, hang: Hang | None) -> None:
        if self._company is not None:
            secondary = failed is not None and failed.is_secondary
            self._company.failing(secondary=secondary, hangs=hang is not None)

    def own_pids(self) -> set[int]:
        """Children that are no ranks."""
        return self._helpers.pids()

    def changed(self, state: GangState, ranks: Mapping[int, int], joined: Sequence[int]) -> None:
        self._outside.status(state, turn=self._turn, ranks=ranks, joined=joined, reason=self._reason)

    def event(self, event: str, **values: object) -> None:
        self._outside.event(event, **values)

    # -- what its company asks of a keeper

    def own_order(self) -> StopOrder | None:
        return self._stop.order(time.monotonic())

    def wanted_ranks(self) -> int | None:
        return self._wish.ranks()

    def eviction(self, generation: int) -> Eviction | None:
        return read_eviction(self._env.home, generation)

    def open_store(self) -> int:
        return self._helpers.open_store()

    def waits(self, reason: str) -> None:
        self._reason = reason
        self.changed("starting", {}, ())

    # -- the course of a gang

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
        if not self._helpers.can_start:
            self._helpers.warm_up()
        shape = turn.shape or _whole(self._env)
        self.event("generation_started", generation=turn.generation, world_size=shape.world_size, port=turn.port)
        starts = self._starts(turn)
        self._oom_kills = read_oom_kills() or 0
        generation = Generation(
            number=turn.generation,
            starter=self._helpers.starter,
            host=self,
            heartbeats=self._env.home / "heartbeat",
            limits=self._env.limits,
            must_beat=self._plan.program.task is not None,
            grace_seconds=self._env.grace_seconds,
        )
        self._outcome = outcome = generation.run(starts)
        first = min((each.rank for each in starts), default=0)
        number = self._turn.generation  # live replicas have gone through some
        self._spans += spans_of(
            outcome.exits, outcome.started, generation=number, events=self._env.out / "ranks", first=first,
            stalled=outcome.hang.silent_seconds if outcome.hang else 0.0,
        )  # fmt: skip
        word, log = self._words_of(outcome)
        killed = self._killed_for_memory()
        return report_of(outcome, generation=number, began=began, oom_kills=killed, word=word, log=log)

    def _starts(self, turn: Start) -> list[RankStart]:
        """Of all ranks that this node has in a generation."""
        shape = turn.shape or _whole(self._env)
        return rank_starts(
            self._env,
            self._plan.at(shape.world_size),
            self._environ,
            shape=shape,
            generation=turn.generation,
            port=turn.port,
            fork=self._helpers.is_warm,
        )

    def _is_live(self) -> bool:
        """Ranks of this gang stay when one is lost, and there is who starts it again."""
        return is_live(self._plan) and self._helpers.can_start

    def _killed_for_memory(self) -> int:
        """Processes, since the generation began."""
        return (read_oom_kills() or 0) - self._oom_kills

    def _words_of(self, outcome: Outcome) -> tuple[str, list[str]]:
        """What the failed rank said that it ended of, where it could not its log, and the last lines of that."""
        culprit = outcome.failed or outcome.hang
        if culprit is None:
            return "", []
        log = self._env.home / "logs" / f"{culprit.rank}.log"
        word = last_word(self._env.out / "ranks" / f"{culprit.rank}.jsonl", self._turn.generation)
        secrets = secret_values(self._environ)
        lines = [conceal(line, secrets) for line in last_lines(log, LOG_LINES)]
        return conceal(word or parting_line(log), secrets), lines

    # -- its end

    def _finish(self, verdict: Verdict) -> GangEnd:
        self._reason = verdict.reason
        self.changed("stopping", {}, ())
        if self._company is not None:
            self._company.close(verdict)
        verdict = self._helpers.close(verdict)
        self._outside.conceal()
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


def _possible_ranks(environment: KeeperEnvironment, plan: Plan) -> range:
    """All that this node may have: a plan that keeps other sizes ready moves them about."""
    most = max((size.mesh.world_size for size in plan.sizes), default=0)
    return range(max(most, environment.world_size)) if plan.sizes else environment.ranks


def _whole(environment: KeeperEnvironment) -> Shape:
    """What the gang was made for."""
    return Shape(world_size=environment.world_size, nodes=tuple(range(environment.num_nodes)))
