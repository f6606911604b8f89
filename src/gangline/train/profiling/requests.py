"""Profile requests during a training: rank 0 polls the store, the control message passes them to the other ranks.

A rank that is named opens its window at the requested step, or at once if that step is over; all others continue.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gangline.errors import GanglineError
from gangline.spec.gang.profiling import ProfileRequest, ProfileSummary, request_key
from gangline.train.runtime.context import RankContext

if TYPE_CHECKING:
    from gangline.train.profiling.window import ProfilerWindow

POLL_SECONDS = 2.0
WRITE_SECONDS = 300.0
"""Time announced to the watchdog for starting the profiler and for writing a trace."""


class Profiling:
    """Profiling on one rank; every method is local, and cheap without a request."""

    def __init__(self, context: RankContext, *, enabled: bool) -> None:
        """`enabled` for the run's own training, the only one that is profiled."""
        self._context = context
        self._request: ProfileRequest | None = None
        self._window: ProfilerWindow | None = None
        self._until = 0
        self._watcher: RequestWatcher | None = None
        if enabled and context.rank == 0 and context.store is not None:
            self._watcher = RequestWatcher(self._read)

    @property
    def requested(self) -> bool:
        """Rank 0 has found a new request; true once for each."""
        return self._watcher is not None and self._watcher.take()

    @property
    def is_open(self) -> bool:
        """The profiler is running on this rank."""
        return self._window is not None

    def receive(self) -> None:
        """Read the request that rank 0 found."""
        try:
            data = self._read()
            request = None if data is None else ProfileRequest.from_json(data)
        except GanglineError as error:
            self._context.events.emit("profile_failed", reason=str(error))
            return
        if request is not None and self._window is None and self._is_mine(request):
            self._request = request

    def before_step(self, step: int) -> None:
        """Called before `step`: opens a window that is due, marks the step in an open one."""
        request = self._request
        if request is not None and self._window is None and step >= request.first:
            self._open(request, step)
        if self._window is not None:
            self._window.begin_step(step)

    def after_step(self, step: int) -> None:
        """Called after `step`: closes a window that ends here."""
        if self._window is not None and step >= self._until:
            self._close()

    def close(self) -> None:
        """End profiling: an open window is written as far as it got."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._window is not None:
            self._close()

    def _open(self, request: ProfileRequest, step: int) -> None:
        from gangline.train.profiling.window import ProfilerWindow  # imports torch.profiler, only when needed

        context = self._context
        assert context.out is not None, "a gang with a store has an output folder"
        folder = context.out / "profiles" / request.name
        self._until = step + request.last - request.first
        with context.during("profile", at_most_seconds=WRITE_SECONDS):
            self._window = ProfilerWindow(request, rank=context.rank, folder=folder, device=context.device)
        context.clock.listener = self._window.phase
        context.events.emit("profile_started", step=step, first=request.first, last=request.last)

    def _close(self) -> None:
        assert self._window is not None, "it is open"
        self._context.clock.listener = None
        with self._context.during("profile", at_most_seconds=WRITE_SECONDS):
            summary = self._window.close()
        self._window, self._request = None, None
        self._context.events.emit(
            "profiled", first=summary.first, last=summary.last, seconds=summary.seconds, idle_share=summary.idle_share
        )

    def _is_mine(self, request: ProfileRequest) -> bool:
        """Whether this rank is named and no earlier generation of it has answered."""
        context = self._context
        if context.rank not in request.ranks or context.out is None:
            return False
        answer = context.out / "profiles" / request.name / f"rank-{context.rank}.json"
        return not answer.exists() or ProfileSummary.from_json(answer.read_bytes()).word != request.word

    def _read(self) -> bytes | None:
        assert self._context.store is not None, "requests are read from the store"
        blob = self._context.store.get(request_key(self._context.plan.run_prefix))
        return None if blob is None else blob.data


class RequestWatcher:
    """Polls for a new request every few seconds, in a thread."""

    def __init__(self, read: Callable[[], bytes | None], *, seconds: float = POLL_SECONDS) -> None:
        self._read, self._seconds = read, seconds
        self._stopped, self._new = threading.Event(), threading.Event()
        self._seen: bytes | None = None
        self._thread = threading.Thread(target=self._poll, name="request-watcher", daemon=True)
        self._thread.start()

    def take(self) -> bool:
        """Whether there is a new request; true once for each."""
        if not self._new.is_set():
            return False
        self._new.clear()
        return True

    def stop(self) -> None:
        """End the thread at its next poll, without waiting."""
        self._stopped.set()

    def _poll(self) -> None:
        while True:
            try:
                found = self._read()
            except GanglineError:  # the store is unavailable: saves report that, and a request can wait
                found = self._seen
            if found is not None and found != self._seen:
                self._seen = found
                self._new.set()
            if self._stopped.wait(self._seconds):
                return
