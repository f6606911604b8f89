"""Searches for the pages: the newest ones of a project, and one by its id. What a caller may not read is not there."""

import threading
from collections.abc import Callable
from time import monotonic

from gangline.errors import IntegrityError, UsageError
from gangline.serve.web.responses import RequestRefused
from gangline.spec.search import SearchRequest, SearchView
from gangline.storage.objects.protocol import ObjectStore

SEARCH = r"^s-[0-9a-f]{8}-[a-z2-7]{4}$"
SHOWN = 5
LIST_SECONDS = 30.0
"""Longest age of a list: it costs a request for each search of the project."""
MOST_PROJECTS = 256
NO_SEARCH = "no such search, or you may not see it"


class SearchReader:
    """Searches of one store; thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lists: dict[str, tuple[float, tuple[SearchRequest, ...]]] = {}
        self._lock = threading.Lock()

    def of(self, project: str | None, readable: tuple[str, ...] | None) -> tuple[SearchRequest, ...]:
        """The newest searches of the one project that a list is about; none without one, or without Optuna here."""
        if project is None or not (readable is None or project in readable):
            return ()
        with self._lock:
            cached = self._lists.get(project)
        if cached is not None and monotonic() - cached[0] < LIST_SECONDS:
            return cached[1]
        try:
            from gangline.search.searches import list_searches  # Optuna is imported with it
        except ImportError:
            return ()
        newest = tuple(list_searches(self._store, project)[:SHOWN])
        with self._lock:
            if len(self._lists) >= MOST_PROJECTS:
                self._lists.clear()
            self._lists[project] = (monotonic(), newest)
        return newest

    def view(self, search: str, *, may_read: Callable[[str], bool]) -> SearchView:
        """One search as it stands; raises RequestRefused, the same for one that is not there and one of others."""
        try:
            from gangline.search.searches import find_search, read_search
        except ImportError as error:
            raise RequestRefused(503, "this service has no Optuna: install gangline[search] with it") from error
        try:
            request = find_search(self._store, search)
        except (UsageError, IntegrityError) as error:
            raise RequestRefused(404, NO_SEARCH) from error
        if not may_read(request.project):
            raise RequestRefused(404, NO_SEARCH)
        return read_search(self._store, request.project, request.id)
