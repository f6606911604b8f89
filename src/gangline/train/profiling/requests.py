"""Profile requests during a training: rank 0 polls the store for them, the control message tells the other ranks.

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

LOOK_SECONDS = 2.0
WRITE_SECONDS = 300.0
"""Silence announced for starting the profiler, and for writing a trace down."""


class Profiling:
    """A rank's part; every method is local, and cheap while nothing is asked."""

    def __init__(self, context: RankContext, *, enabled: bool) -> None:
        """`enabled`: this is the run's own training, the only one that is profiled."""
        self._context = context
        self._request: ProfileRequest | None = None
        self._window: ProfilerWindow | None = None
        self._until = 0
        self._lookout: RequestWatcher | None = None
        if enabled and context.rank == 0 and context.store is not None:
            self._lookout = RequestWatcher(self._read)

    @property
    def asked(self) -> bool:
        """Rank 0 has seen a new request; true once for each."""
        return self._lookout is not None and self._lookout.take()

    @property
    def is_open(self) -> bool:
        """This rank is under the profiler."""
        return self._window is not None

    def heard(self) -> None:
        """Some rank has seen one: read what it says."""
        try:
            data = self._read()
            request = None if data is None else ProfileRequest.from_json(data)
        except GanglineError as error:
            self._context.events.emit("profile_failed", reason=str(error))
            return
        if request is not None and self._window is None and self._is_mine(request):
            self._request = request

    def before_step(self, step: int) -> None:
        """`step` begins: open the window that is due, mark the step in one that is open."""
        request = self._request
        if request is not None and self._window is None and step >= request.first:
            self._open(request, step)
        if self._window is not None:
            self._window.begin_step(step)

    def after_step(self, step: int) -> None:
        """`step` is done: close a window that ends here."""
        if self._window is not None and step >= self._until:
            self._close()

    def close(self) -> None:
        """The training ends: an open window is written down as far as it got."""
        if self._lookout is not None:
            self._lookout.stop()
        if self._window is not None:
            self._close()

    def _open(self, request: ProfileRequest, step: int) -> None:
        from gangline.train.profiling.window import ProfilerWindow  # the profiler is imported by who needs it

        context = self._context
        assert context.out is not None, "a gang with a store has a folder, too"
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
        """This rank is named, and no earlier generation of it has answered."""
        context = self._context
        if context.rank not in request.ranks or context.out is None:
            return False
        answer = context.out / "profiles" / request.name / f"rank-{context.rank}.json"
        return not answer.exists() or ProfileSummary.from_json(answer.read_bytes()).word != request.word

    def _read(self) -> bytes | None:
        assert self._context.store is not None, "who asks has one"
        blob = self._context.store.get(request_key(self._context.plan.run_prefix))
        return None if blob is None else blob.data


class RequestWatcher:
    """Looks for a new request every few seconds, in a thread that never hinders a step."""

    def __init__(self, read: Callable[[], bytes | None], *, seconds: float = LOOK_SECONDS) -> None:
        self._read, self._seconds = read, seconds
        self._over, self._news = threading.Event(), threading.Event()
        self._seen: bytes | None = None
        self._thread = threading.Thread(target=self._look, name="profile-lookout", daemon=True)
        self._thread.start()

    def take(self) -> bool:
        """Is there one that was not taken yet?"""
        if not self._news.is_set():
            return False
        self._news.clear()
        return True

    def stop(self) -> None:
        self._over.set()

    def _look(self) -> None:
        while True:
            try:
                found = self._read()
            except GanglineError:  # the store is away: a training has other ways to say so, and this can wait
                found = self._seen
            if found is not None and found != self._seen:
                self._seen = found
                self._news.set()
            if self._over.wait(self._seconds):
                return
