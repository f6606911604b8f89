"""Runs one order, from its ref to the end of its run; a restarted service continues at any point.

No state is kept that cannot be found again: the forge knows the head of the ref, the store knows the run that answers
the request, the lease of the run knows its driver. So no second driver is started while one runs, and a run that
was started is followed to its end by the holder of the order.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from gangline.errors import ConfigError, StorageError, UsageError
from gangline.forge.protocol import RefHead
from gangline.git.bounded_process import OutputTooLarge, ProcessStopped
from gangline.git.branches import check_branch
from gangline.git.clones import CloneBusy, Clones
from gangline.git.mirror import RemoteBranches
from gangline.line.record.runs import find_run
from gangline.line.record.store import RecordStore
from gangline.line.run import lease
from gangline.line.run.driver_process import DriverProcess
from gangline.sanitize import clean
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.types import Order
from gangline.serve.orders.cancellation import OrderWithdrawal, stop_runs
from gangline.serve.orders.commit_reader import CommitContent, RunIdentity, read_commit
from gangline.serve.orders.notifications import OrderNotifications
from gangline.serve.orders.retry_policy import after_exit, after_run
from gangline.serve.orders.schedules import Schedules
from gangline.serve.orders.searches import (
    comment_on_search,
    not_searched,
    search_arguments,
    search_ended,
    search_refusal,
)
from gangline.serve.orders.sources import CommitSource, source_of
from gangline.serve.orders.triggers import find_pull_request_order, line_to_run, newest_attempt
from gangline.spec.record import Record
from gangline.spec.run_flags import is_reported

CHILD_SECONDS = 0.1
"""Time between two looks at a child."""
OTHER_SECONDS = 2.0
"""Time between two looks at a run that another drives."""
PARKED_SECONDS = 60.0
log = structlog.get_logger()


class RunnerStopped(Exception):
    """The service stops, or another one has the order: what runs is left running."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerContext:
    """What all orders of a service share."""

    context: ServiceContext
    clones: Clones
    schedules: Schedules
    stopping: threading.Event
    program: Sequence[str]
    search_program: Sequence[str]

    @property
    def folder(self) -> Path:
        """Folder of the orders."""
        return self.context.home / "orders"


class OrderRunner:
    """`perform` is called once, in the thread of a worker."""

    def __init__(
        self, shared: RunnerContext, order: Order, *, save: Callable[[Order], bool], follows: bool = True
    ) -> None:
        """`remember` writes what was learned of the order; False where another service has it by now.

        Without `follows` the order is parked if another driver has the run.
        """
        self._shared = shared
        self._context = shared.context
        self._save = save
        self._follows = follows
        self._withdrawal = OrderWithdrawal(shared.context, order.id, shared.stopping)
        self._clones = shared.clones.until(self._withdrawal.is_over)
        self._notifications = OrderNotifications(shared.context, self._clones)
        self.order = order
        self.lost = self._withdrawal.lost

    def perform(self) -> Order:
        """The order as it is to be settled.

        Raises:
            RunnerStopped: Nothing is to be settled.
            GanglineError: It failed on the way; try again.
        """
        try:
            record = self._find_started()
            return self._begin() if record is None else self._follow_to_end(record.commit.sha, record=record)
        except ProcessStopped as error:
            raise RunnerStopped from error
        except CloneBusy as error:  # no failure of this order: another fetch is slow
            return self._parked(OTHER_SECONDS, str(error))

    def _find_started(self) -> Record | None:
        """The run that an earlier service or try began for this order."""
        child = DriverProcess.newest(self._shared.folder, self.order.id)
        while self.order.run is None and child is not None and child.is_alive() and child.run() is None:
            if self._withdrawal.wait(CHILD_SECONDS):
                self._withdrawal.release_driver(child)
                raise RunnerStopped
        run = self.order.run or (child.run() if child else None)
        return find_run(self._context.store, run) if run else None

    def _begin(self) -> Order:
        order, clones = self.order, self._clones
        source = source_of(self._context, order)
        head = source.head(clones, order.ref)
        if head is None:
            stop_runs(self._context, order.project, order.ref, except_order=order.id, reason=f"{order.ref} is gone")
            return self._dropped(f"{order.ref} is gone: nothing to build")
        self.order = replace(order, trust="fork" if head.is_fork else "own", branch=head.branch or order.branch)
        try:
            if self.order.trust == "own" and self.order.branch is not None:
                check_branch(self.order.branch)  # rules speak of branches by name
        except UsageError as error:
            return self._refused(source, head.commit, ConfigError(str(error)))
        if order.kind == "search":
            return self._search(source, head)
        twin = find_pull_request_order(self._context, clones, self.order, source, head)
        if twin is not None:
            return self._dropped(f"pull request {twin} asks for the same commit")
        try:
            return self._prepare(source, head)
        except OutputTooLarge as error:
            return self._refused(source, head.commit, error)

    def _search(self, source: CommitSource, head: RefHead) -> Order:
        """A search of the head of a labelled pull request, to its end or the end of its budget."""
        if why := search_refusal(head):
            return self._dropped(why)
        order, clones = self.order, self._clones
        source.fetch(clones, order.ref)
        state = source.branch_state(clones, head.branch, head.commit)
        place = clones.checkout(source.clone, head.commit, standing=state)
        try:
            line = self._read(place, head.commit).require_line()
        except ConfigError as error:
            return self._refused(source, head.commit, error)
        self.order = replace(order, commit=head.commit)
        if line is None or not line.search.space:
            why = "its line has no [search.space]: nothing to search"
            comment_on_search(source, self.order, lambda: not_searched(self.order, why))
            return self._dropped(why)
        command = [*self._shared.search_program, *search_arguments(place, head.commit, site=self._context.site_file)]
        child, code = self._follow(command, head.commit)
        return search_ended(self._context, source, self.order, place, code=code, last_message=child.last_message())

    def _prepare(self, source: CommitSource, head: RefHead) -> Order:
        """Fetch the commit; raises TooLarge if it is above the size limit."""
        order, clones = self.order, self._clones
        source.fetch(clones, order.ref)
        self._notifications.fetch_published_tags(source)
        if order.commit and not clones.is_ancestor(source.clone, order.commit, head.commit):
            return self._dropped(f"commit {order.commit[:12]} is not on {order.ref}")
        state = source.branch_state(clones, None if head.is_fork else head.branch, head.commit)
        return self._consider(source, replace(head, commit=order.commit or head.commit), state)

    def _consider(self, source: CommitSource, head: RefHead, state: RemoteBranches) -> Order:
        """What the line at this commit says, before anything of it is run."""
        clones = self._clones
        place = clones.checkout(source.clone, head.commit, standing=state)
        try:
            content = self._read(place, head.commit)
            line = line_to_run(self._context, clones, self.order, source, head, content=content)
            identity = None if isinstance(line, str) else content.require_identity()
        except ConfigError as error:
            return self._refused(source, head.commit, error)
        if isinstance(line, str) or identity is None:
            return self._dropped(str(line))
        self._shared.schedules.update(self.order, line)
        return self._find_or_start_run(place, identity)

    def _refused(self, source: CommitSource, commit: str, error: ConfigError) -> Order:
        """Result: no run can be created from this commit."""
        reason = self._notifications.commit_refused(self.order, source, commit, error)
        return replace(self.order, state="done", commit=commit, note=reason)

    def _parked(self, seconds: float, note: str) -> Order:
        return replace(
            self.order, state="parked", not_before=self._context.clock() + seconds, note=clean(note, limit=400)
        )

    def _dropped(self, note: str) -> Order:
        return replace(self.order, state="dropped", note=clean(note, limit=400))

    def _read(self, place: Path, commit: str) -> CommitContent:
        return read_commit(place, commit, self.order, environ=self._context.environ, is_over=self._clones.is_over)

    def _find_or_start_run(self, place: Path, identity: RunIdentity) -> Order:
        """Follow the run that the order's commit has, else start one."""
        existing = newest_attempt(self._context.store, identity)
        if existing is not None and existing.run.state == "ended" and self.order.again:
            existing = None
        return self._follow_to_end(identity.commit.sha, place=place, record=existing)

    def _follow_to_end(self, commit: str, *, place: Path | None = None, record: Record | None = None) -> Order:
        """Follow the run to its end, driving it unless another does; without a record the run is still to be made."""
        while True:
            if record is not None:
                self._record_run(record.run.id, commit)
                record = RecordStore.of(self._context.store, record).read() or record
                self.order = _as_recorded(self.order, record)
                if is_reported(record):  # a driver that died before its report is replaced for that alone
                    return self._close(record)
                if self._is_driven(record) and not self._follows:
                    return self._parked(PARKED_SECONDS, f"{record.run.id} is driven already")
                if self._is_driven(record):
                    self._pause(OTHER_SECONDS)
                    continue
            place = place or self._checkout(commit)
            child, code = self._drive(place, commit, is_new=record is None)
            record = self._record_after(child, place, commit)
            if record is None or record.run.state == "ended" or not self._is_driven(record):
                break
        if record is not None and record.run.state == "ended":
            return self._close(record)
        return after_exit(self.order, code, record=record, last_message=child.last_message(), now=self._context.clock())

    def _is_driven(self, record: Record) -> bool:
        held = lease.read_lease(self._context.store, record.prefix)
        return lease.is_held(held, now=time.time())

    def _checkout(self, commit: str) -> Path:
        """Check out a commit that was fetched before; the forge is asked only if the clone has lost it."""
        source, clones = source_of(self._context, self.order), self._clones
        try:
            return clones.checkout(source.clone, commit)
        except StorageError:
            source.fetch(clones, commit)
            return clones.checkout(source.clone, commit)

    def _drive(self, place: Path, commit: str, *, is_new: bool) -> tuple[DriverProcess, int]:
        """A driver of our own, until it has ended; its exit code."""
        arguments = _arguments(self.order, place, commit, site=self._context.site_file, is_new=is_new)
        return self._follow([*self._shared.program, *arguments], commit)

    def _follow(self, command: Sequence[str], commit: str) -> tuple[DriverProcess, int]:
        child = DriverProcess.start(self._shared.folder, self.order.id, command, environ=self._context.environ)
        log.info("driver_started", order=self.order.id, project=self.order.project, commit=commit)
        try:
            while (code := child.poll()) is None:
                self._record_run(child.run(), commit)
                self._pause(CHILD_SECONDS)
        except RunnerStopped:
            self._withdrawal.release_driver(child)
            raise
        log.info("driver_ended", order=self.order.id, run=child.run(), exit_code=code)
        return child, code

    def _record_after(self, child: DriverProcess, place: Path, commit: str) -> Record | None:
        """Record of the run that the child drove, or of the one that it found driven by another."""
        run = child.run() or self.order.run
        if run is not None:
            self._record_run(run, commit)
            return find_run(self._context.store, run)
        try:
            return newest_attempt(self._context.store, self._read(place, commit).require_identity())
        except ConfigError:
            return None

    def _record_run(self, run: str | None, commit: str) -> None:
        """Write down which run it is, once it is known; a database that is away gets it at the next look."""
        if run is None or run == self.order.run:
            return
        learned = replace(self.order, run=run, commit=commit)
        try:
            if not self._save(learned):
                raise RunnerStopped
        except StorageError as error:
            log.warning("order_not_written", order=self.order.id, cause=str(error))
            return
        self.order = learned
        self._context.run_changed(self.order.project, commit, run)

    def _close(self, record: Record) -> Order:
        self._context.run_changed(self.order.project, record.commit.sha, record.run.id)
        self._notifications.run_ended(self.order, record)
        return after_run(self.order, record)

    def _pause(self, seconds: float) -> None:
        if self._withdrawal.wait(seconds):
            raise RunnerStopped


def _as_recorded(order: Order, record: Record) -> Order:
    """The order with what its run began with: a fork's run is never continued as one of the project."""
    commit = record.commit
    return replace(
        order, trust=commit.trust, branch=commit.branch or order.branch,
        pull_request=order.pull_request if commit.pull_request is None else commit.pull_request,
    )  # fmt: skip


def _arguments(order: Order, place: Path, commit: str, *, site: Path, is_new: bool) -> list[str]:
    """Arguments of `gangline run`."""
    return [
        str(place), "--site", str(site), "--commit", commit,
        *([f"--branch={order.branch}"] if order.branch else []),
        *(["--pull-request", str(order.pull_request)] if order.pull_request else []),
        *(["--trust", "fork"] if order.trust == "fork" else []),
        *(part for override in order.overrides for part in ("--set", override)),
        *(["--again"] if order.again and is_new else []),
    ]  # fmt: skip
