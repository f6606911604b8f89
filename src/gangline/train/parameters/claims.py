"""Claims of blocks: a worker writes one under the lowest free number, and trains the block. No torch.

A claim that is older than its lease may be followed by another attempt. Ages are differences of times that the store
gave, so that the clock of no worker counts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from gangline.errors import IntegrityError
from gangline.spec.parameter_server import ParameterServer
from gangline.storage.objects.protocol import Entry, ObjectStore
from gangline.train.parameters.layout import BlockSet, Claim, ParameterStore, RunBlocks

LEAST_LEASE_SECONDS = 120.0
BLOCKS_A_LEASE = 4
FINAL_LEASE_SECONDS = 1800.0
"""Least lease of the end of a run, which lasts as long as a save and an evaluation."""
MOST_ATTEMPTS = 9999
_NAME = re.compile(r"(?P<block>[0-9]{8})(\.(?P<attempt>[0-9]{4}))?\.json")


@dataclass(slots=True)
class _Listing:
    """Claims and pushes from a block on, as the store lists them."""

    claims: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Newest attempt of a block, and when it was claimed."""
    pushed: dict[int, float] = field(default_factory=dict)
    newest: float = 0.0
    """Time of the newest object: the store's clock is not behind it."""


class Claims:
    """Claims of one worker in one life."""

    def __init__(self, objects: ParameterStore, table: ParameterServer, blocks: RunBlocks, claim: Claim) -> None:
        """`claim` is what this worker writes."""
        self._objects, self._store, self._keys = objects, objects.store, objects.keys
        self._table, self._blocks, self._claim = table, blocks, claim
        self._longest = 0.0
        """Seconds from claim to push of the slowest block seen."""
        self._left: set[int] | None = None
        """Blocks that an earlier life of this worker claimed; None: not read yet."""
        self.held: dict[int, int] = {}
        """Blocks that this life claimed and has not pushed, with the attempt."""

    def refill(self, done: BlockSet, waiting: int) -> list[int]:
        """Claim the lowest free blocks that are not in `done`; what was claimed, which may be nothing.

        Args:
            done: Merged or dropped blocks.
            waiting: RunBlocks that this worker has claimed and not begun. It holds fewer the fewer there are, so that a
                slow worker does not keep the last ones to itself.
        """
        listing = self._list(done.mark)
        numbers = [each for each in range(done.mark, self._blocks.count) if each not in done]
        numbers = [number for number in numbers if number not in listing.pushed and number not in self.held]
        untouched = sum(number not in listing.claims for number in numbers)
        wanted = min(self._table.max_ahead, 1 + untouched // (2 * self._table.workers)) - waiting
        taken: list[int] = []
        for asks in (False, True):  # the clock itself is asked if nothing else is free
            if taken or wanted <= 0 or not numbers:
                break
            time = self._now() if asks else listing.newest
            free = (
                number for number in numbers if number not in listing.claims or self._is_free(number, listing, time)
            )
            taken = list(islice((each for each in free if self._write(each, listing)), wanted))
        return taken

    def take_final(self) -> bool:
        """Claim the end of the run, which one worker saves and measures."""
        number = self._blocks.count
        if number in self.held:
            return True
        listing = self._list(number)
        is_free = number not in listing.claims or self._is_free(number, listing, self._now(), FINAL_LEASE_SECONDS)
        return is_free and self._write(number, listing)

    def give_back(self, block: int) -> None:
        """Let others take a claimed block at once."""
        self._store.delete(self._keys.claim(block, self.held.pop(block)))

    def _write(self, block: int, listing: _Listing) -> bool:
        attempt = listing.claims.get(block, (0, 0.0))[0] + 1
        if attempt > MOST_ATTEMPTS:
            return False
        if self._objects.put_if_absent(self._keys.claim(block, attempt), self._claim) is None:
            return False
        self.held[block] = attempt
        return True

    def _list(self, first: int) -> _Listing:
        """Claims and pushes of blocks from `first` on."""
        listing = _Listing()
        for block, attempt, entry in list_from(self._store, self._keys.claims, first):
            listing.claims[block] = attempt, entry.modified
            listing.newest = max(listing.newest, entry.modified)
        for block, _, entry in list_from(self._store, self._keys.pushes, first):
            listing.pushed[block] = entry.modified
            listing.newest = max(listing.newest, entry.modified)
            if block in listing.claims:
                self._longest = max(self._longest, entry.modified - listing.claims[block][1])
        if self._left is None:
            open_claims = (claim for claim in listing.claims if claim not in listing.pushed)
            self._left = {claim for claim in open_claims if self._is_of_earlier_life(claim, listing.claims[claim][0])}
        return listing

    def _is_of_earlier_life(self, block: int, attempt: int) -> bool:
        try:
            read = self._objects.read(Claim, self._keys.claim(block, attempt))
        except IntegrityError:
            return False
        return read is not None and read[0].worker == self._claim.worker and read[0].life != self._claim.life

    def _is_free(self, block: int, listing: _Listing, now: float, least: float = 0.0) -> bool:
        """Whether a claimed block may be claimed again; a claim from the future is none."""
        if self._left is not None and block in self._left:
            self._left.discard(block)
            return True
        return abs(now - listing.claims[block][1]) > max(least, self.lease_seconds)

    @property
    def lease_seconds(self) -> float:
        """Age from which a claim holds no more."""
        if self._table.lease_seconds != "auto":
            return self._table.lease_seconds
        return max(LEAST_LEASE_SECONDS, BLOCKS_A_LEASE * self._longest)

    def _now(self) -> float:
        """The clock of the store."""
        key = self._keys.clock(self._claim.worker)
        self._store.put(key, b"")
        entry = self._store.head(key)
        return entry.modified if entry is not None else 0.0


def list_from(store: ObjectStore, prefix: str, first: int) -> Iterator[tuple[int, int, Entry]]:
    """Block, attempt and entry of claims or pushes from block `first` on; a push has attempt 0.

    Objects with other names are left out.
    """
    after = f"{prefix}{first:08d}"
    while entries := store.list(prefix, after):
        for entry in entries:
            if named := _NAME.fullmatch(entry.key.removeprefix(prefix)):
                yield int(named["block"]), int(named["attempt"] or 0), entry
        after = entries[-1].key
