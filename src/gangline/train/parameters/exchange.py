"""Exchange of one worker with the store, in a thread: changes go up, weights come down, blocks are claimed.

The store may be away for a long time: training goes on with what is here, and everything is asked for again.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from torch import Tensor

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.spec.gang.status import GangResult
from gangline.spec.plan import Plan
from gangline.train.parameters.claims import Claims
from gangline.train.parameters.encode import file_bytes, pack
from gangline.train.parameters.layout import (
    BlockPush,
    BlockSet,
    Claim,
    Head,
    ParameterStore,
    RowLayout,
    RowShard,
    RunBlocks,
    newest_sound,
)
from gangline.train.parameters.merge import put_first_version, read_file, weights_form

POLL_SECONDS, SLOWEST_POLL_SECONDS = 0.1, 2.0
STORE_SECONDS = 900.0
"""Time without an answer of the store after which a worker or a server gives up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Final:
    """What the worker that saved the checkpoint measured."""

    run: str
    result: GangResult


@dataclass(frozen=True, slots=True)
class Arrival:
    """A new head of a shard."""

    head: Head
    weights: Tensor | None
    """None: those of the head before; blocks were dropped and none was merged."""
    damage: str = ""
    """Why the newest version could not be read and this is the one before; empty: this is the newest."""


class StoreExchange:
    """The worker's side of the store; `once` does everything that is to be done, from the thread or from a test."""

    def __init__(self, objects: ParameterStore, plan: Plan, *, life: str) -> None:
        """`plan` is that of the worker, `life` names this attempt and generation of it."""
        assert plan.parameters is not None, plan.run
        self._objects, self._plan, self._table = objects, plan, plan.parameters.table
        self._blocks = RunBlocks.of(plan)
        claim = Claim(run=plan.run, worker=plan.worker, life=life)
        self._claims = Claims(objects, self._table, self._blocks, claim)
        self._lock = threading.Condition()
        self._outbox: deque[tuple[BlockPush, list[bytes]]] = deque()
        """Pushes, each with the file of each shard."""
        self._claimed: deque[int] = deque()
        self._arrived: dict[int, Arrival] = {}
        self._heads: dict[int, Head] = {}
        self._damaged: set[int] = set()
        """Shards whose newest version could not be read."""
        self._shards: tuple[RowShard, ...] = ()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._answered = time.monotonic()
        self._silent = 0.0
        """Seconds without an answer since the last push, up to the newest one."""
        self._sent = self._received = 0
        self._leaves_the_end = plan.parameters.has_joined
        """A worker that joined may leave at any time, so one of the run's own saves."""
        self.saves, self.is_over = False, False
        """Whether this worker holds the claim of the end; whether it has nothing to do any more."""

    # -- called by the worker

    def open(self, layout: RowLayout, weights: Tensor) -> None:
        """Write layout and first version, unless another worker has; compare the layout with that of the others.

        Raises:
            ConfigError: The model of another worker has other tensors.
        """
        self._shards, keys = layout.shards(), self._objects.keys
        found = self._objects.read(RowLayout, keys.layout)
        if found is None:
            for shard in self._shards:
                put_first_version(self._objects, shard, self._plan, weights[shard.start : shard.stop])
            self._objects.put_if_absent(keys.layout, layout)
            found = self._objects.read(RowLayout, keys.layout)
        if found is None or found[0] != layout:
            raise ConfigError(
                f"worker {self._plan.worker}: wanted tensors with the names and shapes of the other workers' model,"
                " found others; build the same model in all workers"
            )

    def start(self) -> None:
        """Work in a thread from now on."""
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def send(self, push: BlockPush, changes: Sequence[Mapping[str, Tensor]]) -> None:
        """Send the change of a block, by shard; `push` needs no digests, bytes and attempt."""
        files = [pack(change) for change in changes]
        with self._lock:
            self._outbox.append((push, files))
            self._lock.notify_all()

    def take_block(self) -> int | None:
        """The next claimed block; None: there is none yet, or too many changes wait to be sent."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._claimed or len(self._outbox) >= self._table.max_ahead:
                return None
            self._lock.notify_all()
            return self._claimed.popleft()

    @property
    def has_arrivals(self) -> bool:
        """Whether newer versions came down since they were last taken."""
        with self._lock:
            return bool(self._arrived)

    def take_arrivals(self) -> dict[int, Arrival]:
        """Newest versions by shard that came down since the last call."""
        with self._lock:
            arrived, self._arrived = self._arrived, {}
            return arrived

    def wait(self, seconds: float) -> None:
        """Wait until something has happened, at most `seconds`; without a thread, do what is to be done."""
        if self._thread is None:
            self.once()
            return
        with self._lock:
            self._lock.wait(seconds)

    @property
    def silent_seconds(self) -> float:
        """Time since the store last answered."""
        return time.monotonic() - self._answered

    def finish(self, result: GangResult) -> None:
        """Tell the others that the checkpoint is saved."""
        self._objects.put_if_absent(self._objects.keys.final, Final(run=self._plan.run, result=result))

    def close(self, *, seconds: float) -> None:
        """Send what waits, for at most `seconds`; give claimed blocks back; end the thread."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._outbox and self._error is None and time.monotonic() < deadline:
                self._lock.wait(POLL_SECONDS)
            self._closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)
        if self._error is None and not self.is_over:
            with suppress(StorageError):
                for block in [each for each in self._claims.held if each < self._blocks.count]:
                    if all(push.block != block for push, _ in self._outbox):
                        self._claims.give_back(block)

    # -- the exchange itself

    def once(self) -> bool:
        """Send, pull and claim once; whether anything happened."""
        happened = False
        while self._outbox:
            self._send(*self._outbox[0])
            with self._lock:
                self._outbox.popleft()
            happened = True
        happened |= self._pull()
        happened |= self._claim()
        self._hear()
        if happened:
            with self._lock:
                self._lock.notify_all()
        return happened

    def _hear(self) -> None:
        """The store has answered."""
        if self.silent_seconds > 2 * SLOWEST_POLL_SECONDS:
            self._silent += self.silent_seconds
        self._answered = time.monotonic()

    def _run(self) -> None:
        pause = POLL_SECONDS
        while not self._closing:
            try:
                happened = self.once()
                pause = POLL_SECONDS if happened else min(2 * pause, SLOWEST_POLL_SECONDS)
            except Exception as error:
                pause = SLOWEST_POLL_SECONDS
                if not isinstance(error, StorageError) or self.silent_seconds > STORE_SECONDS:
                    with self._lock:
                        self._error = error  # raised where blocks are taken
                        self._lock.notify_all()
                    return
            with self._lock:
                if not self._closing and not self._outbox:
                    self._lock.wait(pause)

    def _send(self, push: BlockPush, changes: list[bytes]) -> None:
        """Changes first, then the push that names them."""
        store, keys = self._objects.store, self._objects.keys
        push = replace(
            push, attempt=self._claims.held.get(push.block, push.attempt),
            digests=tuple(sha256(change).hexdigest() for change in changes),
        )  # fmt: skip
        for shard, data in zip(self._shards, changes, strict=True):
            store.put(keys.change(push, shard.number), data)
        self._hear()
        sent = self._sent + sum(map(len, changes))
        push = replace(push, wire_bytes=(sent, self._received), silent_seconds=round(self._silent, 3))
        if self._objects.put_if_absent(keys.push(push.block), push) is None:  # another worker's counts
            for shard in self._shards:
                store.delete(keys.change(push, shard.number))
        self._sent = self._received = 0
        self._silent = 0.0
        self._claims.held.pop(push.block, None)

    def _pull(self) -> bool:
        """Bring the newest version of each shard; whether a head moved."""
        moved = False
        for shard in self._shards:
            key = self._objects.keys.head(shard.number)
            found = self._objects.read(Head, key)
            if found is None:
                raise IntegrityError(f"{key}: wanted a head, found nothing")
            head, known = found[0], self._heads.get(shard.number)
            if known is not None and (head.version < known.version or head.done.count < known.done.count):
                raise IntegrityError(
                    f"{key}: wanted version {known.version} or later, found {head.version}: it went back"
                )
            if head == known:
                continue
            arrival = Arrival(head, None)
            if known is None or head.version > known.version or shard.number in self._damaged:
                arrival = Arrival(*newest_sound(head, partial(self._weights, shard)))
                if arrival.weights is None:  # two newer ones came meanwhile
                    continue
                (self._damaged.add if arrival.damage else self._damaged.discard)(shard.number)
            with self._lock:
                waiting = self._arrived.get(shard.number)
                if waiting and arrival.weights is None:
                    arrival = replace(waiting, head=head)
                self._arrived[shard.number] = arrival
            self._heads[shard.number] = head
            moved = True
        return moved

    def _weights(self, shard: RowShard, head: Head) -> Tensor | None:
        """Weights of a version; None: they are gone."""
        form, key = weights_form(shard, self._plan), self._objects.keys.weights(shard.number, head.file)
        tensors = read_file(self._objects.store, key, form, head.weights_sha256)
        if tensors is None:
            return None
        self._received += file_bytes(form)
        return tensors["weights"].float()

    @property
    def done(self) -> BlockSet:
        """Blocks that are merged or dropped in every shard."""
        sets = [head.done for head in self._heads.values()]
        mark = min(block_set.mark for block_set in sets)
        above = {block for block_set in sets for block in (*range(mark, block_set.mark), *block_set.above)}
        return BlockSet(mark=mark).with_blocks(
            block for block in above if all(block in block_set for block_set in sets)
        )

    def _claim(self) -> bool:
        """Claim blocks ahead, and at the end the end itself; whether something was claimed."""
        if len(self._heads) < len(self._shards):
            return False
        done = self.done
        if done.mark == self._blocks.count:
            if self.saves or self.is_over:
                return False
            self.is_over = self._leaves_the_end or self._objects.store.head(self._objects.keys.final) is not None
            self.saves = not self.is_over and self._claims.take_final()
            return self.saves or self.is_over
        taken = self._claims.refill(done, len(self._claimed))
        with self._lock:
            self._claimed.extend(taken)
        return bool(taken)
