"""Role of the servers of a run: each merges its shards until a worker has saved the result, which rank 0 writes.

All that is to be kept is in the store: a server that is killed begins again with the heads. Servers notice which
workers have pushed nothing for long, are back, or are slow; a worker that joined may leave at any time without a word,
so only the run's own workers are missed.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from statistics import median
from typing import Any

from gangline.errors import SIGTERM_CODE, ConfigError, IntegrityError, StorageError
from gangline.train import heartbeat
from gangline.train.account.results import losses_of, write_result
from gangline.train.parameters.claims import list_from
from gangline.train.parameters.exchange import POLL_SECONDS, SLOWEST_POLL_SECONDS, STORE_SECONDS, Final
from gangline.train.parameters.layout import (
    BlockPush,
    Claim,
    ParameterKeys,
    ParameterStore,
    RowLayout,
    RunBlocks,
)
from gangline.train.parameters.merge import Merge, ShardMerger
from gangline.train.runtime.context import RankContext
from gangline.units import counted

CALL_SECONDS = 300.0
"""Silence that is announced for one pass over the store."""
STOPPED = "SIGTERM: what is merged is in the store"

SILENT_SECONDS = 60.0
"""Least time without a merged push after which a worker is called silent."""
BLOCKS_OF_SILENCE = 3
"""Blocks, each as long as the longest one seen, that a silence lasts at least."""
SLOW = 1.5
"""Ratio of a worker's time for a sample to that of the others from which it is called slow."""
FEWEST_BLOCKS = 10
"""Newest blocks of each worker that are compared; fewer say nothing."""


class PushInbox:
    """New pushes of a run, each verified once."""

    def __init__(self, objects: ParameterStore, *, shards: int, blocks: RunBlocks) -> None:
        self._objects, self._shards, self._blocks = objects, shards, blocks
        self._known: dict[int, BlockPush] = {}

    def read(self, first: int) -> tuple[list[BlockPush], dict[int, str]]:
        """All pushes of blocks from `first` on, and why new ones were refused; these are deleted.

        A block whose push was refused is trained again once its claim has expired.
        """
        self._known = {block: push for block, push in self._known.items() if block >= first}
        refused: dict[int, str] = {}
        for block, _, entry in list_from(self._objects.store, self._objects.keys.pushes, first):
            if block in self._known:
                continue
            try:
                if (found := self._objects.read(BlockPush, entry.key)) is not None:
                    self._check(found[0], block)
                    self._known[block] = found[0]
            except IntegrityError as error:
                refused[block] = str(error)
                self._objects.store.delete(entry.key)
        return list(self._known.values()), refused

    def _check(self, push: BlockPush, block: int) -> None:
        """Require that a push is one that a worker of this run may make."""
        if push.block != block or not 0 <= block < self._blocks.count:
            raise IntegrityError(f"wanted the push of block {block} of {self._blocks.count}, found one of {push.block}")
        if len(push.versions) != self._shards or len(push.digests) != self._shards:
            raise IntegrityError(f"wanted changes of {self._shards} shards, found {len(push.digests)}")
        push.require_figures()
        if min(push.versions) < 0:
            raise IntegrityError(f"wanted versions from 0 on, found {min(push.versions)}")
        if push.samples != self._blocks.samples(block):
            raise IntegrityError(f"wanted {self._blocks.samples(block)} samples, found {push.samples}")
        claim = self._objects.read(Claim, self._objects.keys.claim(block, push.attempt))
        if claim is None or claim[0].worker != push.worker:
            raise IntegrityError(f"wanted a claim of block {block} by worker {push.worker}, found none")


@dataclass(slots=True)
class _Progress:
    """What rank 0 tells of the merges of its first shard."""

    samples: int = 0
    since: float = field(default_factory=time.monotonic)
    losses: list[float] = field(default_factory=list)
    tokens: int = 0


class MergeServer:
    """One process that merges; local, it knows no other server."""

    def __init__(self, context: RankContext, objects: ParameterStore) -> None:
        plan = context.plan
        self._context, self._plan, self._objects = context, plan, objects
        self._blocks = RunBlocks.of(plan)
        self._mergers: list[ShardMerger] = []
        self._inbox: PushInbox | None = None
        self._since_report = _Progress()
        self._watch = WorkerWatch(plan.num_workers, now=time.monotonic())

    def once(self) -> bool:
        """Open the shards, if the workers have begun, and merge what is due; whether anything happened."""
        if self._inbox is None:
            return self._open()
        pushes, refused = self._inbox.read(min(shard_merger.head.done.mark for shard_merger in self._mergers))
        for block, reason in refused.items():
            self._context.events.emit("push_refused", block=block, reason=reason)
        happened = bool(refused)
        for merger in self._mergers:
            if merger.damage:
                self._context.events.emit("version_damaged", shard=merger.shard.number, reason=merger.damage)
                merger.damage = ""
            for push in pushes:
                merger.add(push)
            if merger.is_due():
                with self._context.clock.during("optimizer"):
                    merge = merger.merge()
                happened = True
                if merge is not None and merger.shard.number == 0:
                    self._report(merge)
        return happened

    def _open(self) -> bool:
        found = self._objects.read(RowLayout, self._objects.keys.layout)
        if found is None:
            return False
        shards = found[0].shards()
        own = shards[self._context.rank :: self._plan.world_size]
        if not own:
            raise ConfigError(
                f"train.parameter_server.servers: wanted at most one for each of {counted(len(shards), 'shard')}, found"
                f" {self._plan.world_size}; servers = {len(shards)} works, or a smaller shard_bytes"
            )
        self._mergers = [ShardMerger(self._objects, shard, self._plan, blocks=self._blocks) for shard in own]
        self._inbox = PushInbox(self._objects, shards=len(shards), blocks=self._blocks)
        if own[0].number == 0:
            self._since_report.samples = self._blocks.samples_in(self._mergers[0].head.done)
        size = sum(shard.size for shard in own)
        self._context.events.emit("shards_opened", shards=len(own), size_bytes=4 * size)
        return True

    def _report(self, merge: Merge) -> None:
        """Loss and progress in steps of the run, so that its curve has the axis of other strategies."""
        context, seen, now = self._context, self._since_report, time.monotonic()
        seen.losses += [push.loss for push in merge.pushes if push.loss is not None]
        seen.tokens += sum(push.tokens for push in merge.pushes)
        samples = self._blocks.samples_in(merge.head.done)
        workers = sorted({push.worker for push in merge.pushes})
        for name, fields in self._watch.see(merge.pushes, now=now):
            context.events.emit(name, **fields)
        silent, silent_seconds = self._watch.longest_silence(now)
        context.events.emit(
            "merged", version=merge.head.version, blocks=merge.head.done.count, of=self._blocks.count, workers=workers,
            ages=list(merge.ages), dropped=list(merge.dropped), refused=merge.refused,
            age_mean=merge.head.age_sum / max(merge.head.merged, 1), num_dropped=merge.head.dropped,
            num_refused=merge.head.refused, silent_seconds=silent_seconds, silent_worker=silent,
            sent_bytes=sum(push.wire_bytes[0] for push in merge.pushes),
            received_bytes=sum(push.wire_bytes[1] for push in merge.pushes),
        )  # fmt: skip
        step = samples // self._plan.global_batch
        if step == seen.samples // self._plan.global_batch or not seen.losses:
            return
        seconds, loss = now - seen.since, fsum(seen.losses) / len(seen.losses)
        heartbeat.beat(step)
        line = {"seed": self._plan.seed, "job": None, "step": step, "loss": loss}
        speed = {"tokens_per_second": seen.tokens / seconds} if seen.tokens else {}
        if context.metrics is not None:
            context.metrics.add(line | speed, now=True)
        size = 4 * sum(merger.shard.size for merger in self._mergers)
        context.events.emit("saved", step=step, key=self._objects.keys.head(0), size_bytes=size)
        context.events.emit(
            "step", step=step, loss=loss, samples=samples - seen.samples, tokens=seen.tokens, seconds=seconds
        )  # fmt: skip
        self._since_report = _Progress(samples=samples, since=now)


def run(context: RankContext) -> int:
    """Exit code of this rank; local, ranks of the gang meet in the store alone."""
    assert context.store is not None, "servers run in a gang"
    plan = context.plan
    objects = ParameterStore(context.store, ParameterKeys.of(plan), plan.run, context.key)
    server = MergeServer(context, objects)
    pause, answered = POLL_SECONDS, time.monotonic()
    while not context.stop_asked:
        try:
            heartbeat.expect(CALL_SECONDS)
            context.phase("exchange")
            happened, final = server.once(), objects.read(Final, objects.keys.final)
            context.phase("exchange")
            context.book()
            answered = time.monotonic()
        except StorageError:
            if time.monotonic() - answered > STORE_SECONDS:
                raise
            happened, final = False, None
        if final is not None:  # the losses are those that the servers saw
            losses, result = losses_of(context.metrics, seed=plan.seed, job=None), final[0].result
            write_result(
                context.metrics, replace(result, jobs=tuple(replace(job, losses=losses) for job in result.jobs))
            )
            return 0
        context.write_ledger(every_seconds=1.0)
        pause = POLL_SECONDS if happened else min(2 * pause, SLOWEST_POLL_SECONDS / 4)
        time.sleep(pause)
    context.events.emit("stopping", reason=STOPPED)
    return SIGTERM_CODE


class WorkerWatch:
    """Sees merged pushes; a silence, its end and a slow worker are an event once each."""

    def __init__(self, workers: int, *, now: float) -> None:
        """`now` is of any clock that only goes forward, as everywhere here."""
        self._last = dict.fromkeys(range(1, workers + 1), now)
        """When a push of each worker was last merged."""
        self._silent: set[int] = set()
        self._slow: set[int] = set()
        self._longest = 0.0
        self._paces: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=FEWEST_BLOCKS))
        """Seconds for a sample in the newest blocks of each worker."""

    def longest_silence(self, now: float) -> tuple[int, float]:
        """The worker that has pushed nothing for the longest time, and that time."""
        worker = min(self._last, key=self._last.__getitem__)
        return worker, now - self._last[worker]

    def see(self, pushes: Sequence[BlockPush], *, now: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events that follow from pushes which were merged now, each with its fields."""
        for push in pushes:
            self._longest = max(self._longest, push.seconds)
            self._paces[push.worker].append(push.seconds / push.samples)
        for worker in sorted({push.worker for push in pushes} & self._last.keys()):
            if worker in self._silent:
                self._silent.remove(worker)
                without = sum(push.silent_seconds for push in pushes if push.worker == worker)
                yield "worker_back", {"worker": worker, "seconds": now - self._last[worker], "without_store": without}
            self._last[worker] = now
        for worker, last in self._last.items():
            if worker not in self._silent and now - last > max(SILENT_SECONDS, BLOCKS_OF_SILENCE * self._longest):
                self._silent.add(worker)
                yield "worker_silent", {"worker": worker, "seconds": now - last}
        paces = {worker: median(each) for worker, each in self._paces.items() if len(each) == FEWEST_BLOCKS}
        for worker, pace in paces.items():
            others = [each for other, each in paces.items() if other != worker]
            usual = median(others) if others else 0.0  # 0: blocks too short to be measured
            if worker not in self._slow and 0 < SLOW * usual <= pace:
                self._slow.add(worker)
                yield "worker_slow", {"worker": worker, "ratio": pace / usual}
