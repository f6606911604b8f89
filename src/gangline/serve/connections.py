"""Open connections by address: nobody takes all of them, and one that only waits gives way to one that comes.

Where there are too many, of one address or of all, the connection that was silent longest is closed: of that address,
else of the address that has most, and first of those on which nothing was answered yet. One whose request is being
answered is never cut, and every other one has its first seconds: who comes again and again is turned away at the door.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from gangline.serve.addresses import Addresses, budget_of

MOST = 1024
"""Of all, where a process may have as many files."""
MOST_EACH = 512
"""Of one address; a proxy that the site names may have all."""
SILENT_SECONDS = 2.0
"""After which a connection may give way."""


class Held(Protocol):
    """A connection."""

    @property
    def is_waiting(self) -> bool:
        """For its client: nothing was asked, or not yet to the end."""
        ...

    @property
    def was_answered(self) -> bool:
        """Has it carried a request to its end?"""
        ...

    def cut(self) -> None: ...


class Connections:
    """All of one server; its event loop alone calls it."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        most: int = MOST,
        most_each: int = MOST_EACH,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses, self._most, self._most_each, self._clock = addresses, most, most_each, clock
        self._open: dict[str, OrderedDict[Held, float]] = {}
        """By address: when each was heard of last, the longest silence first."""

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def admit(self, connection: Held, peer: str) -> bool:
        """Count a new one in; False where there is no room that could be made."""
        name = budget_of(peer)
        if len(self._open.get(name, ())) >= self._most_each and not self._addresses.is_proxy(peer):
            has_room = self._cut_one(name)
        else:
            has_room = len(self) < self._most or self._cut_any()
        if has_room:
            self._open.setdefault(name, OrderedDict())[connection] = self._clock()
        return has_room

    def heard(self, connection: Held, peer: str) -> None:
        """Its client has sent something."""
        mine = self._open.get(budget_of(peer), OrderedDict())
        if connection in mine:
            mine[connection] = self._clock()
            mine.move_to_end(connection)

    def leave(self, connection: Held, peer: str) -> None:
        name = budget_of(peer)
        self._open.get(name, OrderedDict()).pop(connection, None)
        if not self._open.get(name, True):
            del self._open[name]

    def _cut_any(self) -> bool:
        """Of the address that has most, else of the one with most after it."""
        return any(self._cut_one(name) for name in sorted(self._open, key=lambda each: -len(self._open[each])))

    def _cut_one(self, name: str) -> bool:
        """Of an address; False where all are being answered, or have just begun."""
        found = next((each for each in self._silent(name) if not each.was_answered), None)
        found = found or next(self._silent(name), None)
        if found is None:
            return False
        self.leave(found, name)
        found.cut()
        return True

    def _silent(self, name: str) -> Iterator[Held]:
        """Those that wait for their client, the longest silence first."""
        since = self._clock() - SILENT_SECONDS
        for each, heard in self._open[name].items():
            if heard > since:
                return
            if each.is_waiting:
                yield each
