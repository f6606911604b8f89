"""Merges of one shard: pushes in, a new version out. The head decides, and moves by compare-and-set alone.

Whatever a server does before the head moves may be done again by another one; whatever it does after that is tidying.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256

import torch
from torch import Tensor

from gangline.errors import IntegrityError, NonFiniteError, StorageError
from gangline.spec.compression import Compression
from gangline.spec.plan import Plan
from gangline.storage.objects.protocol import ObjectStore, get_bounded
from gangline.train.parameters.encode import ChangeCodec, Form, file_bytes, pack, unpack
from gangline.train.parameters.layout import (
    BlockPush,
    BlockSet,
    Head,
    ParameterStore,
    RowShard,
    RunBlocks,
    newest_sound,
)


def nesterov(weights: Tensor, momentum: Tensor, change: Tensor, *, lr: float, decay: float, share: float) -> None:
    """One outer step by `share` of a mean change, in place; with share 1 that of torch.optim.SGD with Nesterov.

    Four steps of a quarter decay the momentum as one whole step does, and add as much to it.
    """
    momentum.mul_(decay**share).add_(change, alpha=share)
    weights.sub_(change.add(momentum, alpha=decay), alpha=lr * share)


def codec_of(shard: RowShard, compression: Compression) -> ChangeCodec:
    """How changes of a shard travel; buffers go whole."""
    return ChangeCodec(Compression() if shard.is_mean else compression, shard.size)


def weights_form(shard: RowShard, plan: Plan) -> Form:
    """Tensors of the file that workers read."""
    assert plan.parameters is not None, plan.run
    is_short = plan.parameters.table.pull == "bf16" and not shard.is_mean
    return {"weights": ("BF16" if is_short else "F32", (shard.size,))}


def state_form(shard: RowShard, plan: Plan) -> Form:
    """Tensors of the file that a server continues from."""
    momentum = ("F32", (0 if shard.is_mean else shard.size,))
    short = weights_form(shard, plan)["weights"][0] == "BF16"
    return {"momentum": momentum, "weights": ("F32", (shard.size if short else 0,))}


def read_file(store: ObjectStore, key: str, form: Form, digest: str) -> dict[str, Tensor] | None:
    """Tensors of a file whose size, digest and form are checked in this order; None: it is gone.

    Raises:
        IntegrityError: It is larger than its form allows, was changed, or has another form.
    """
    blob = get_bounded(store, key, most_bytes=file_bytes(form))
    if blob is None:
        return None
    if (found := sha256(blob.data).hexdigest()) != digest:
        raise IntegrityError(f"{key}: wanted digest {digest[:12]}, found {found[:12]}: it was changed")
    return unpack(blob.data, form)


def write_version(
    objects: ParameterStore, shard: RowShard, plan: Plan, *, head: Head, weights: Tensor, momentum: Tensor
) -> Head:
    """Write the files that `head` names; returns it with their digests."""
    store, keys = objects.store, objects.keys
    forms = state_form(shard, plan), weights_form(shard, plan)
    state = pack({"momentum": momentum, "weights": weights if forms[0]["weights"][1][0] else weights[:0]})
    pulled = pack({"weights": weights.to(torch.bfloat16) if forms[1]["weights"][0] == "BF16" else weights})
    store.put(keys.state(shard.number, head.file), state)
    store.put(keys.weights(shard.number, head.file), pulled)
    return replace(head, state_sha256=sha256(state).hexdigest(), weights_sha256=sha256(pulled).hexdigest())


def put_first_version(objects: ParameterStore, shard: RowShard, plan: Plan, weights: Tensor) -> None:
    """Write version 0 of a shard, unless another worker has."""
    key = objects.keys.head(shard.number)
    if objects.store.head(key) is not None:
        return
    head = Head(
        run=plan.run, shard=shard.number, version=0, file=file_name(0), weights_sha256="", state_sha256="",
        done=BlockSet(),
    )  # fmt: skip
    momentum = torch.zeros(0 if shard.is_mean else shard.size)
    objects.put_if_absent(
        key, write_version(objects, shard, plan, head=head, weights=weights, momentum=momentum)
    )  # fmt: skip


def file_name(version: int) -> str:
    """Name of a version's files, unlike those of any other writer of that version."""
    return f"{version:08d}-{secrets.token_hex(4)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """What one merge did."""

    head: Head
    pushes: tuple[BlockPush, ...]
    """Merged ones."""
    ages: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    """Blocks whose push was too old."""
    refused: dict[int, str] = field(default_factory=dict)
    """Blocks whose change was not taken, with the reason."""


class ShardMerger:
    """Newest version of one shard in memory, and the pushes that wait for it."""

    def __init__(
        self, objects: ParameterStore, shard: RowShard, plan: Plan, *, blocks: RunBlocks,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`plan` is that of a worker or of the servers."""
        assert plan.parameters is not None, plan.run
        self._objects, self._store, self._keys = objects, objects.store, objects.keys
        self.shard, self._plan, self._table = shard, plan, plan.parameters.table
        self._compression = plan.parameters.compression
        self._blocks, self._now = blocks, now
        self._codec = codec_of(shard, self._compression)
        self._waiting: dict[int, tuple[BlockPush, float]] = {}
        """Pushes by block, and when this server first saw them."""
        self._joined: dict[int, int] = {}
        """Workers that the run did not start, with the version that their last push was merged into."""
        self.damage = ""
        """Why the newest version cannot be read and the one before is continued from; empty: it can."""
        self.head, self._etag, self._weights, self._momentum = self._open()

    def add(self, push: BlockPush) -> None:
        """A push that waits for a merge; of a block that is done already nothing happens."""
        if push.block not in self.head.done:
            self._waiting.setdefault(push.block, (push, self._now()))

    def is_due(self) -> bool:
        """Whether as many pushes wait as a merge takes, or the first has waited for its time, or no other will come."""
        if not self._waiting:
            return False
        enough = min(self._table.merge_size, self._blocks.count - self.head.done.count)
        first = min(seen for _, seen in self._waiting.values())
        return len(self._waiting) >= enough or self._now() - first >= self._table.grace_seconds

    def merge(self) -> Merge | None:
        """Merge all that waits; None: another server moved the head, which is read again."""
        waiting = [push for _, (push, _) in sorted(self._waiting.items())]
        taken: list[tuple[BlockPush, int, Tensor]] = []
        dropped: list[int] = []
        refused: dict[int, str] = {}
        for push in waiting:
            age = self.head.version - push.versions[self.shard.number]
            if age > self._table.oldest:
                dropped.append(push.block)
                continue
            try:
                taken.append((push, age, self._change(push, age)))
            except IntegrityError as error:
                refused[push.block] = str(error)
        head = replace(
            self.head,
            done=self.head.done.with_blocks(block_push.block for block_push in waiting),
            dropped=self.head.dropped + len(dropped),
            refused=self.head.refused + len(refused),
            age_sum=self.head.age_sum + sum(age for _, age, _ in taken),
        )
        weights, momentum = self._weights, self._momentum
        if taken:
            weights, momentum = self._stepped(taken)
            if not bool(torch.isfinite(weights).all()):
                raise NonFiniteError(
                    f"shard {self.shard.number}: weights are not finite after the merge of blocks"
                    f" {', '.join(str(push.block) for push, _, _ in taken)}; lower train.compression.outer_lr"
                )
            version = head.version + 1
            head = replace(head, version=version, file=file_name(version), older=replace(self.head, older=None))
            head = write_version(
                self._objects, self.shard, self._plan, head=head, weights=weights, momentum=momentum
            )  # fmt: skip
        etag = self._objects.compare_and_set(self._keys.head(self.shard.number), head, self._etag)
        if etag is None:
            self.head, self._etag, self._weights, self._momentum = self._open()
            self._forget_done()
            return None
        before, self.head, self._etag, self._weights, self._momentum = self.head, head, etag, weights, momentum
        self._forget_done()
        for push in waiting:
            self._store.delete(self._keys.change(push, self.shard.number))
        if taken and before.older is not None:
            self._store.delete(self._keys.weights(self.shard.number, before.older.file))
            self._store.delete(self._keys.state(self.shard.number, before.older.file))
        ages = tuple(age for _, age, _ in taken)
        return Merge(
            head=head, pushes=tuple(push for push, _, _ in taken), ages=ages, dropped=tuple(dropped), refused=refused
        )

    def _stepped(self, taken: list[tuple[BlockPush, int, Tensor]]) -> tuple[Tensor, Tensor]:
        """Weights and momentum after the merge of `taken`."""
        version, table, compression = self.head.version, self._table, self._compression
        assert compression.outer_lr is not None, "the rules of a line ask for it"
        self._joined |= {push.worker: version for push, _, _ in taken if push.worker > table.workers}
        self._joined = {worker: seen for worker, seen in self._joined.items() if version - seen <= table.oldest}
        workers = table.workers + len(self._joined)  # with those that joined each push has a smaller share
        shares = [push.samples / (1 + age / workers) for push, age, _ in taken]
        mean = torch.zeros(self.shard.size)
        for (_, _, change), share in zip(taken, shares, strict=True):
            mean.add_(change, alpha=share / sum(shares))
        if self.shard.is_mean:
            part = min(1.0, len(taken) / workers)
            return torch.lerp(self._weights, mean, part), self._momentum
        weights, momentum = self._weights.clone(), self._momentum.clone()
        nesterov(
            weights, momentum, mean, lr=compression.outer_lr, decay=compression.outer_momentum,
            share=len(taken) / workers,
        )  # fmt: skip
        return weights, momentum

    def _change(self, push: BlockPush, age: int) -> Tensor:
        if age < 0:
            raise IntegrityError(f"wanted a version up to {self.head.version}, found one trained from a later version")
        key = self._keys.change(push, self.shard.number)
        tensors = read_file(self._store, key, self._codec.form, push.digests[self.shard.number])
        if tensors is None:
            raise IntegrityError(f"wanted {key}, which the push names, found nothing")
        return self._codec.decode(tensors)

    def _forget_done(self) -> None:
        self._waiting = {block: each for block, each in self._waiting.items() if block not in self.head.done}

    def _open(self) -> tuple[Head, str, Tensor, Tensor]:
        """Head, its etag, weights and momentum; leftovers of servers that were killed are deleted."""
        number, key = self.shard.number, self._keys.head(self.shard.number)
        found = self._objects.read(Head, key)
        if found is None:
            raise StorageError(f"wanted {key}, found nothing")
        head, etag = found
        if head.shard != number:
            raise IntegrityError(f"{key}: wanted the head of shard {number}, found that of {head.shard}")
        for entry in self._store.list(self._keys.files(number)):
            file = entry.key.rsplit("/", 1)[1].partition(".")[0]
            kept = {head.file, head.older.file if head.older else ""}
            if file < f"{head.version - 1:08d}" and file not in kept:  # another server may write newer ones now
                self._store.delete(entry.key)
        opened, (weights, momentum), damage = newest_sound(head, self._files)
        if damage:  # blocks that were merged between the two are no longer done: their pushes are looked at again
            self.damage, opened = damage, replace(opened, version=head.version)
        return opened, etag, weights, momentum

    def _files(self, head: Head) -> tuple[Tensor, Tensor]:
        """Weights and momentum of a version."""
        number, form = self.shard.number, state_form(self.shard, self._plan)
        pulled_form = weights_form(self.shard, self._plan)
        pulled = read_file(self._store, self._keys.weights(number, head.file), pulled_form, head.weights_sha256)
        state = read_file(self._store, self._keys.state(number, head.file), form, head.state_sha256)
        if pulled is None or state is None:
            raise StorageError(
                f"{self._keys.head(number)}: wanted the files of version {head.version}, found none: the head may have"
                " moved"
            )
        return state["weights"] if form["weights"][1][0] else pulled["weights"], state["momentum"]
