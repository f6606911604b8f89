"""The node agent: runs helper processes and one generation of ranks after another, writes the result of the node.

The coordinator of the gang decides which generation is next and whether there is one.
"""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gangline.errors import GanglineError
from gangline.keeper.coordination.connect import make_coordinator
from gangline.keeper.coordination.protocol import Coordinator, GenerationStart
from gangline.keeper.coordination.reports import LOG_LINES, NodeReport, report_of
from gangline.keeper.coordination.restart_policy import RestartDecision
from gangline.keeper.coordination.world_size import GangShape
from gangline.keeper.helper_processes import HelperProcesses
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import secret_values
from gangline.keeper.ipc.rejoin_message import RejoinMessage, is_live, remove_rejoin, write_rejoin
from gangline.keeper.ipc.requests import EvictionRequest, ResizeRequestFile, read_eviction
from gangline.keeper.ledger import ProcessSpan
from gangline.keeper.logs.log_tail import last_meaningful_line
from gangline.keeper.logs.rank_files import exit_reason, last_lines
from gangline.keeper.node_result import gang_end, process_spans
from gangline.keeper.node_status import NodeStatus
from gangline.keeper.rank_environment import rank_starts
from gangline.keeper.ranks.generation import Generation, Replacements
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.rank_exit import RankExit, read_oom_kills
from gangline.keeper.ranks.rank_processes import RankStart
from gangline.keeper.ranks.stop_request import StopRequest, StopSignals
from gangline.keeper.ranks.watchdog import Hang
from gangline.sanitize import conceal
from gangline.spec.gang.status import GangEnd, GangState
from gangline.spec.plan import Plan


class Keeper:
    """One node's part of a gang, from its start to its exit file."""

    def __init__(self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> None:
        self._env, self._plan, self._environ = environment, plan, dict(environ)
        self._start = time.monotonic()
        secrets = secret_values(self._environ)
        self._outside = NodeStatus(environment, _possible_ranks(environment, plan), secrets=secrets)
        seconds = environment.deadline_seconds
        deadline = None if seconds is None else self._start + seconds
        self._stop = StopSignals(environment.home, deadline=deadline, deadline_seconds=seconds)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._turn = GenerationStart(generation=0, port=0)
        self._wish = ResizeRequestFile(environment.home)
        self._reason = ""
        self._gathered: float | None = None
        self._outcome: GenerationResult | None = None
        self._spans: list[ProcessSpan] = []
        self._oom_kills = 0
        self._helpers = HelperProcesses(environment, plan, self._environ, keeper=self)
        self._company: Coordinator | None = None

    def run(self) -> GangEnd:
        """Returns how the gang ended; it is on disk by then, and no process is left."""
        self.changed("starting", {}, ())
        remove_rejoin(self._env.home)
        try:
            self._helpers.open()
            self._company = make_coordinator(self._env, self, self._plan)
            self._helpers.warm_up()
            verdict = self._generations(self._company)
        except GanglineError as error:
            verdict = RestartDecision(restart=False, exit_code=error.exit_code, retry=error.retry, reason=str(error))
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

    def order(self) -> StopRequest | None:
        own = self.own_stop_request()
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
        self._spans += process_spans(
            dead, started, generation=self._turn.generation, events=self._env.out / "ranks",
            first=min(each.rank for each in starts),
        )  # fmt: skip
        self._turn, self._reason = turn, turn.reason
        write_rejoin(self._env.home, RejoinMessage(generation=turn.generation, port=turn.port))
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

    def own_stop_request(self) -> StopRequest | None:
        return self._stop.order(time.monotonic())

    def wanted_ranks(self) -> int | None:
        return self._wish.ranks()

    def eviction(self, generation: int) -> EvictionRequest | None:
        return read_eviction(self._env.home, generation)

    def open_store(self) -> int:
        return self._helpers.open_store()

    def waits(self, reason: str) -> None:
        self._reason = reason
        self.changed("starting", {}, ())

    # -- the course of a gang

    def _generations(self, company: Coordinator) -> RestartDecision:
        last: NodeReport | None = None
        while True:
            turn = company.next(last)
            if isinstance(turn, RestartDecision):
                return turn
            self._turn, self._reason = turn, turn.reason
            if self._gathered is None and self._env.num_nodes > 1:
                self._gathered = time.monotonic()
            last = self._run_generation(turn)

    def _run_generation(self, turn: GenerationStart) -> NodeReport:
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
        self._spans += process_spans(
            outcome.exits, outcome.started, generation=number, events=self._env.out / "ranks", first=first,
            stalled=outcome.hang.silent_seconds if outcome.hang else 0.0,
        )  # fmt: skip
        word, log = self._exit_reason_and_log(outcome)
        killed = self._killed_for_memory()
        return report_of(outcome, generation=number, began=began, oom_kills=killed, word=word, log=log)

    def _starts(self, turn: GenerationStart) -> list[RankStart]:
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

    def _exit_reason_and_log(self, outcome: GenerationResult) -> tuple[str, list[str]]:
        """What the failed rank said that it ended of, where it could not its log, and the last lines of that."""
        culprit = outcome.failed or outcome.hang
        if culprit is None:
            return "", []
        log = self._env.home / "logs" / f"{culprit.rank}.log"
        word = exit_reason(self._env.out / "ranks" / f"{culprit.rank}.jsonl", self._turn.generation)
        secrets = secret_values(self._environ)
        lines = [conceal(line, secrets) for line in last_lines(log, LOG_LINES)]
        return conceal(word or last_meaningful_line(log), secrets), lines

    # -- its end

    def _finish(self, verdict: RestartDecision) -> GangEnd:
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


def _whole(environment: KeeperEnvironment) -> GangShape:
    """What the gang was made for."""
    return GangShape(world_size=environment.world_size, nodes=tuple(range(environment.num_nodes)))
