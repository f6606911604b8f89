"""Node agent: runs the helper processes and the generations of ranks on one node, and writes the result of the node.

The coordinator of the gang decides which generation is next and whether there is one.
"""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gangline.errors import GanglineError
from gangline.fabric.reliability.interval import retuned_steps
from gangline.keeper.coordination.factory import make_coordinator
from gangline.keeper.coordination.protocol import Coordinator, GenerationStart
from gangline.keeper.coordination.reports import LOG_LINES, NodeReport, report_of
from gangline.keeper.coordination.restart_policy import RestartDecision
from gangline.keeper.coordination.world_size import GangShape
from gangline.keeper.helper_processes import HelperProcesses
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ipc.gang_inputs import secret_values
from gangline.keeper.ipc.requests import (
    EvictionRequest,
    RejoinMessage,
    ResizeRequestFile,
    is_live,
    read_eviction,
    remove_rejoin,
    write_rejoin,
)
from gangline.keeper.logs.rank_files import failure_line, last_lines
from gangline.keeper.node_ledger import ProcessSpan
from gangline.keeper.node_result import gang_end, process_spans
from gangline.keeper.node_status import NodeStatus
from gangline.keeper.rank_environment import rank_starts
from gangline.keeper.ranks.generation import Generation
from gangline.keeper.ranks.generation_host import Replacements
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.process_reports import ProcessReports
from gangline.keeper.ranks.rank_exit import RankExit, read_oom_kills
from gangline.keeper.ranks.rank_processes import RankStart
from gangline.keeper.ranks.stop_request import StopRequest, StopSignals
from gangline.keeper.ranks.watchdog import Hang
from gangline.sanitize import conceal
from gangline.spec.gang.status import GangEnd, GangState
from gangline.spec.plan import Plan


class Keeper:
    """Node agent of a gang, from its start to its exit file."""

    def __init__(self, environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> None:
        self._env, self._plan, self._environ = environment, plan, dict(environ)
        self._began = time.monotonic()
        secrets = secret_values(self._environ)
        self._status = NodeStatus(environment, _possible_ranks(environment, plan), secrets=secrets)
        self._stop = StopSignals(
            environment.home, began=self._began, deadline_seconds=environment.deadline_seconds,
            deadline_key=environment.deadline_key,
        )  # fmt: skip
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._current = GenerationStart(generation=0, port=0)
        self._resize_file = ResizeRequestFile(environment.home)
        self._reason = ""
        self._gathered_at: float | None = None
        self._outcome: GenerationResult | None = None
        self._spans: list[ProcessSpan] = []
        self._process_reports = ProcessReports(environment.processes, secrets=secrets)
        self._oom_kills = 0
        self._helpers = HelperProcesses(environment, plan, self._environ, keeper=self)
        self._coordinator: Coordinator | None = None

    def run(self) -> GangEnd:
        """Run the gang; returns its end, which is on disk by then. No process of the gang is left."""
        self.update_status("starting", {}, ())
        remove_rejoin(self._env.home)
        try:
            self._helpers.open()
            self._coordinator = make_coordinator(self._env, self, self._plan)
            self._helpers.warm_up()
            decision = self._generations(self._coordinator)
        except GanglineError as error:
            decision = RestartDecision(restart=False, exit_code=error.exit_code, retry=error.retry, reason=str(error))
        return self._finish(decision)

    # -- called by the generation

    def wait(self, seconds: float) -> None:
        poll = select.poll()
        coordinator = self._coordinator.handles() if self._coordinator else []
        for handle in (self._woken, *self._helpers.handles(), *coordinator, *self._status.handles()):
            poll.register(handle, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        if self._coordinator is not None:
            self._coordinator.poll()
        self._status.poll()

    def stop_request(self) -> StopRequest | None:
        own = self.own_stop_request()
        return self._coordinator.exchange_stop(own) if self._coordinator else own

    def remote_halt(self) -> Halt | None:
        return self._coordinator.remote_halt() if self._coordinator else None

    def replacements(self, dead: Sequence[RankExit], started: Mapping[int, float]) -> Replacements | None:
        if not self._is_live() or self._coordinator is None or self.stop_request() is not None:
            return None
        start = self._coordinator.replace(dead, oom_kills=self._num_oom_kills())
        if start is None:
            return None
        starts = self._starts(start)
        self._spans += process_spans(
            dead, started, generation=self._current.generation, events=self._env.out / "ranks",
            first=min(rank_start.rank for rank_start in starts),
        )  # fmt: skip
        self._current, self._reason = start, start.reason
        write_rejoin(self._env.home, RejoinMessage(generation=start.generation, port=start.port))
        lost = {rank_exit.rank for rank_exit in dead}
        return Replacements(
            generation=start.generation, starts=tuple(rank_start for rank_start in starts if rank_start.rank in lost)
        )

    def report_failure(self, failed: RankExit | None, hang: Hang | None) -> None:
        if self._coordinator is not None:
            secondary = failed is not None and failed.is_secondary
            self._coordinator.report_failure(secondary=secondary, hangs=hang is not None)

    def own_pids(self) -> set[int]:
        """Child processes that are not ranks."""
        return self._helpers.pids()

    def update_status(self, state: GangState, ranks: Mapping[int, int], joined: Sequence[int]) -> None:
        self._status.update(state, start=self._current, ranks=ranks, joined=joined, reason=self._reason)

    def event(self, event: str, **values: object) -> None:
        self._status.event(event, **values)

    # -- called by the coordinator

    def own_stop_request(self) -> StopRequest | None:
        return self._stop.request(time.monotonic())

    def wanted_ranks(self) -> int | None:
        return self._resize_file.ranks()

    def eviction(self, generation: int) -> EvictionRequest | None:
        return read_eviction(self._env.home, generation)

    def open_store(self) -> int:
        return self._helpers.open_store()

    def set_waiting(self, reason: str) -> None:
        self._reason = reason
        self.update_status("starting", {}, ())

    # -- generations

    def _generations(self, coordinator: Coordinator) -> RestartDecision:
        last: NodeReport | None = None
        while True:
            start = coordinator.next(last)
            if isinstance(start, RestartDecision):
                return start
            self._current, self._reason = start, start.reason
            if self._gathered_at is None and self._env.num_nodes > 1:
                self._gathered_at = time.monotonic()
            last = self._run_generation(start)

    def _run_generation(self, start: GenerationStart) -> NodeReport:
        began = time.monotonic()
        if not self._helpers.can_start:
            self._helpers.warm_up()
        shape = start.shape or _full_shape(self._env)
        self.event("generation_started", generation=start.generation, world_size=shape.world_size, port=start.port)
        starts = self._starts(start)
        self._oom_kills = read_oom_kills() or 0
        generation = Generation(
            number=start.generation,
            starter=self._helpers.starter,
            host=self,
            heartbeats=self._env.home / "heartbeat",
            events=self._env.out / "ranks",
            limits=self._env.limits,
            must_beat=self._plan.program.task is not None,
            last_step=self._plan.last_step,
            grace_seconds=self._env.grace_seconds,
            process_reports=self._process_reports,
        )
        self._outcome = outcome = generation.run(starts)
        first = min((rank_start.rank for rank_start in starts), default=0)
        number = self._current.generation  # live replicas go through several
        self._spans += process_spans(
            outcome.exits, outcome.started, generation=number, events=self._env.out / "ranks", first=first,
            stalled=outcome.hang.silent_seconds if outcome.hang else 0.0,
        )  # fmt: skip
        reason, log = self._exit_reason_and_log(outcome)
        oom_kills = self._num_oom_kills()
        return report_of(outcome, generation=number, began=began, oom_kills=oom_kills, rank_reason=reason, log=log)

    def _starts(self, start: GenerationStart) -> list[RankStart]:
        """Starts of all ranks that this node has in a generation."""
        shape = start.shape or _full_shape(self._env)
        plan = self._plan.at(shape.world_size)
        return rank_starts(
            self._env,
            plan,
            self._environ,
            shape=shape,
            generation=start.generation,
            port=start.port,
            fork=self._helpers.is_warm,
            save_every=self._save_every(plan, start),
        )

    def _save_every(self, plan: Plan, start: GenerationStart) -> int:
        """Steps between saves of a generation; equal on all nodes."""
        policy = plan.checkpoint
        if policy.costs is None:
            return policy.every
        every = retuned_steps(
            policy.costs, planned=policy.every, most=plan.last_step, interruptions=start.interruptions,
            elapsed_seconds=start.elapsed_seconds,
        )  # fmt: skip
        if every != policy.every:
            self.event("save_interval", generation=start.generation, every=every, planned=policy.every)
        return every

    def _is_live(self) -> bool:
        """Ranks of this gang stay when one is lost, and the starter can start that one again."""
        return is_live(self._plan) and self._helpers.can_start

    def _num_oom_kills(self) -> int:
        """Processes that were killed for memory since the generation began."""
        return (read_oom_kills() or 0) - self._oom_kills

    def _exit_reason_and_log(self, outcome: GenerationResult) -> tuple[str, list[str]]:
        """Exit reason of the failed rank (the last line of its log if it gave none), and the last lines of its log."""
        culprit = outcome.failed or outcome.hang
        if culprit is None:
            return "", []
        log = self._env.home / "logs" / f"{culprit.rank}.log"
        reason = outcome.failed.reason if outcome.failed else ""
        secrets = secret_values(self._environ)
        lines = [conceal(line, secrets) for line in last_lines(log, LOG_LINES)]
        code = outcome.failed.code if outcome.failed else 0
        said = conceal(reason or failure_line(log, code=code), secrets)
        first = self._process_reports.first_failure(outcome.failed) if outcome.failed else None
        if first is not None and (not first.said or first.said not in said):
            said = f"{said}; before it, {first.text}" if said else f"before it, {first.text}"
        return said, lines

    # -- end of the gang

    def _finish(self, decision: RestartDecision) -> GangEnd:
        self._reason = decision.reason
        self.update_status("stopping", {}, ())
        if self._coordinator is not None:
            self._coordinator.close(decision)
        decision = self._helpers.close(decision)
        self._status.redact_logs()
        self._process_reports.close()
        self.event("ended", exit_code=decision.exit_code)
        end = gang_end(
            decision,
            (self._coordinator.outcome if self._coordinator else None) or self._outcome,
            environment=self._env,
            generation=self._current.generation,
            restarts=self._current.restarts,
            spans=self._spans,
            wall=(self._began, time.monotonic()),
            gathered=self._gathered_at,
        )
        self.update_status("ended", {}, ())
        self._status.end(end)
        return end


def _possible_ranks(environment: KeeperEnvironment, plan: Plan) -> range:
    """All ranks that this node may have: a plan with other sizes gives it different ones."""
    most = max((size.mesh.world_size for size in plan.sizes), default=0)
    return range(max(most, environment.world_size)) if plan.sizes else environment.ranks


def _full_shape(environment: KeeperEnvironment) -> GangShape:
    """All nodes of the gang, each with all its ranks."""
    return GangShape(world_size=environment.world_size, nodes=tuple(range(environment.num_nodes)))
