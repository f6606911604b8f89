"""Gangs of a run with a parameter server: the server gang is followed as any gang, the workers by threads.

Each gang has its own attempts, and the end of one worker is its own: the run ends with the server gang, or when no
worker is left. Chain 0 of the role are the servers, chain k is worker k, so another driver finds them all by name.
"""

import threading
from collections.abc import Callable
from dataclasses import fields, replace

from gangline.errors import CancelledError, GanglineError, StillRunning
from gangline.launch.protocol import Gang, GangEvent
from gangline.line.gangs.attempts import FinishedGang, GangShare, run_gang
from gangline.line.gangs.podsets import podset_for
from gangline.line.record.context import RunContext
from gangline.line.record.observer import Observer, ObserverRelay
from gangline.line.record.store import Change
from gangline.planner.plans import server_plan, worker_plans
from gangline.spec.gang.status import GangEnd
from gangline.spec.plan import Plan
from gangline.spec.record import Record

WORKER = "worker"
"""Kind of the events about workers in a record."""
_STARTS = frozenset({"suspended", "placing", "creating", "pulling", "starting", "joining"})
"""Kinds of waiting of a gang that starts as it should; of any other one the driver says why it waits."""
END_SECONDS = 60.0
"""Time in which workers end after the servers have; then they are stopped."""


def submit_gangs(ctx: RunContext) -> Gang:
    """Start or adopt all gangs that train; returns the one whose end is that of the training."""
    if ctx.plan.parameters is None:
        return ctx.launcher.submit(podset_for(ctx, ctx.plan))
    gang = ctx.launcher.submit(podset_for(ctx, server_plan(ctx.plan)))
    for plan in worker_plans(ctx.plan):
        ctx.launcher.submit(podset_for(ctx, plan, chain=plan.worker))
    return gang


def run_gangs(ctx: RunContext, stage: str, plan: Plan, *, on_started: Callable[[Gang, int], object]) -> FinishedGang:
    """Run all gangs of `plan` as `run_gang` does one; the result has the shares of all, the rest is the servers'."""
    if plan.parameters is None:
        return run_gang(ctx, stage, plan, on_started=on_started)
    observer = ctx.observer
    ctx.observer = _Locked(observer)
    workers = _Workers(ctx, stage, worker_plans(plan))
    try:
        return workers.run(server_plan(plan), on_started)
    finally:
        ctx.observer = observer
        ctx.pending += [each for worker in workers.contexts for each in worker.pending]


class _Locked(ObserverRelay):
    """Observer that threads may call."""

    def __init__(self, inner: Observer) -> None:
        super().__init__(inner)
        self._lock = threading.RLock()

    def progress(self, stage: str, event: GangEvent) -> None:
        with self._lock:
            super().progress(stage, event)

    def note(self, text: str) -> None:
        with self._lock:
            super().note(text)


class _OfWorker(ObserverRelay):
    """Passes on what a worker's gang says in words: its steps are not those of the run."""

    def __init__(self, inner: Observer, number: int) -> None:
        super().__init__(inner)
        self._number = number

    def progress(self, stage: str, event: GangEvent) -> None:
        del stage
        if event.kind in ("restart", "note") and event.text:
            self.note(event.text)
        if event.kind == "waiting" and event.text and event.data.get("kind") not in _STARTS:
            self.note(f"waits: {event.text}")

    def note(self, text: str) -> None:
        super().note(f"worker {self._number}: {text}")


class _WorkerContext(RunContext):
    """Context of a thread that follows a worker: the record is written by the driver's own thread alone."""

    def change(self, change: Change) -> Record:
        del change
        return self.record


class _Stopped(Exception):
    """The training has ended: no worker starts another gang."""


class _NoWorkerLeft(Exception):
    """Every worker has ended, and the training has not."""


class _Workers:
    """Threads that follow the worker gangs while the driver follows the servers."""

    def __init__(self, ctx: RunContext, stage: str, plans: list[Plan]) -> None:
        self._ctx, self._stage, self._plans = ctx, stage, plans
        self._lock = threading.Lock()
        self._finished: list[FinishedGang] = []
        self._errors: list[GanglineError] = []
        """Errors of workers that did not finish, in the order of their ends."""
        self._gangs: dict[int, str] = {}
        self._servers, self._closing = "", False
        values = {field.name: getattr(ctx, field.name) for field in fields(RunContext)}
        self.contexts = [
            _WorkerContext(**values | {"observer": _OfWorker(ctx.observer, plan.worker), "pending": []})
            for plan in plans
        ]
        self._threads = [
            threading.Thread(target=self._follow, args=(context, plan), name=f"worker-{plan.worker}", daemon=True)
            for context, plan in zip(self.contexts, plans, strict=True)
        ]

    def run(self, servers: Plan, on_started: Callable[[Gang, int], object]) -> FinishedGang:
        """Follow all gangs until the servers have ended."""

        def started(gang: Gang, restarts: int) -> None:
            on_started(gang, restarts)
            with self._lock:
                self._servers = gang.name
                failed = len(self._errors) == len(self._plans)
            if failed:
                self._ctx.launcher.cancel(gang.name, reason="no worker is left", save=False)
                raise _NoWorkerLeft
            for thread in self._threads:
                if not thread.is_alive() and thread.ident is None:
                    thread.start()

        try:
            finished = run_gang(self._ctx, self._stage, servers, on_started=started)
        except _NoWorkerLeft:
            return self._failed(servers)
        except CancelledError:
            self._stop_workers()
            raise
        self._await_workers(0.0 if finished.error else END_SECONDS)
        restarts = finished.restarts + sum(finished_gang.restarts for finished_gang in self._finished)
        return replace(
            finished, shares=finished.shares + self._shares, restarts=restarts, num_ranks=self._num_ranks(servers)
        )  # fmt: skip

    def _follow(self, ctx: RunContext, plan: Plan) -> None:
        """Run one worker to its end; called in a thread."""

        def started(gang: Gang, restarts: int) -> None:
            del restarts
            self._gangs[plan.worker] = gang.name
            if self._closing:
                ctx.launcher.cancel(gang.name, reason="the training has ended", save=False)
                raise _Stopped

        try:
            finished = run_gang(ctx, self._stage, plan, chain=plan.worker, on_started=started)
        except (_Stopped, CancelledError, StillRunning):
            return
        except GanglineError as error:
            self._lost(ctx, error)
            return
        with self._lock:
            self._finished.append(finished)
        if finished.error is not None and not self._closing:
            self._lost(ctx, finished.error)

    def _lost(self, ctx: RunContext, error: GanglineError) -> None:
        with self._lock:
            self._errors.append(error)
            left = len(self._plans) - len(self._errors)
            servers = self._servers
        ctx.record_event(self._stage, WORKER, f"ended for good: {error}; {left} of {len(self._plans)} workers train on")
        if not left and servers:
            self._ctx.launcher.cancel(servers, reason="no worker is left", save=False)

    def _await_workers(self, seconds: float) -> None:
        """Workers end when the result is there; those that do not are stopped."""
        self._closing = seconds == 0
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(seconds)
        if any(thread.is_alive() for thread in self._threads):
            self._stop_workers()

    def _stop_workers(self) -> None:
        self._closing = True
        for name in list(self._gangs.values()):
            self._ctx.launcher.cancel(name, reason="the training has ended", save=True)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(END_SECONDS)

    def _failed(self, servers: Plan) -> FinishedGang:
        """The end of the run with the last worker."""
        error = self._errors[-1]
        last = next((gang for gang in reversed(self._finished) if gang.error is error), None)
        end = last.end if last else GangEnd(exit_code=error.exit_code, retry=error.retry, reason=str(error))
        return FinishedGang(
            name=self._servers, plan=servers, end=end, result=None, shares=self._shares, attempts=1, error=error,
            num_ranks=self._num_ranks(servers),
        )  # fmt: skip

    @property
    def _shares(self) -> tuple[GangShare, ...]:
        """Time of all gangs of workers."""
        return tuple(share for gang in self._finished for share in gang.shares)

    def _num_ranks(self, servers: Plan) -> int:
        return servers.world_size + sum(plan.world_size for plan in self._plans)
