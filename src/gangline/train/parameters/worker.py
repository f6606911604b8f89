"""Outer steps of a worker of a parameter server: after each block its change is pushed, and what was merged is taken.

Weights are what was merged last plus the changes of own blocks that this merge does not contain: progress between a
push and its merge is neither lost nor counted twice. What was merged is taken within a block, too, under the progress
of that block: changes from weights of a whole block ago do not go together with an outer momentum of 0.9. What
compression leaves out of a change goes with the next one.
"""

import time
from collections.abc import Mapping, Sequence
from math import fsum, isfinite

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from gangline.errors import NonFiniteError
from gangline.spec.compression import Compression
from gangline.spec.gang.status import GangResult
from gangline.train import heartbeat
from gangline.train.parallel.local_sgd import OuterStep, Position, make_outer_step, trainable
from gangline.train.parameters.exchange import Arrival, StoreExchange
from gangline.train.parameters.layout import (
    BlockPush,
    ParameterKeys,
    ParameterStore,
    RowLayout,
    RowShard,
    RunBlocks,
    TensorPlace,
)
from gangline.train.parameters.merge import codec_of
from gangline.train.runtime.context import RankContext

TAKES = 4
"""Times in a block, its begin included, at which newer weights are taken."""
WAIT_SECONDS = 0.5
CLOSE_SECONDS = 20.0
"""Longest time for the last push of a worker that was asked to stop."""
STORE_SILENCE_SECONDS = 1200.0
"""Longest time for which rank 0 may wait for the store while the other ranks of its worker wait for it."""
_TRAIN, _END, _STOP = 0, 1, 2


def outer_step_of(context: RankContext, model: nn.Module, optimizer: torch.optim.Optimizer) -> OuterStep | None:
    """Outer steps of the plan; None: all ranks average every step.

    Raises:
        ConfigError: There is only one replica.
    """
    return WorkerStep(context, model) if context.plan.worker else make_outer_step(context, model, optimizer)


class WeightsRow:
    """Weights of a model as one row of float32 on the host; reading and writing are collective."""

    def __init__(self, model: nn.Module) -> None:
        kept = model.state_dict().keys()
        buffers = {
            name: tensor for name, tensor in model.named_buffers() if tensor.is_floating_point() and name in kept
        }
        parameters = trainable(model)
        self._parts: dict[str, Tensor] = {name: parameters[name] for name in sorted(parameters)} | {
            name: buffers[name] for name in sorted(buffers)
        }
        self._num_parameters = len(parameters)

    def layout(self, run: str, shard_bytes: int) -> RowLayout:
        """Layout of the row."""
        places = [TensorPlace(name=name, shape=tuple(part.shape)) for name, part in self._parts.items()]
        number = self._num_parameters
        return RowLayout(
            run=run, parameters=tuple(places[:number]), buffers=tuple(places[number:]), shard_numbers=shard_bytes // 4
        )

    @torch.no_grad()
    def read(self) -> Tensor:
        """A copy of the row."""
        whole = (part.full_tensor() if isinstance(part, DTensor) else part for part in self._parts.values())
        return torch.cat([tensor.detach().float().cpu().reshape(-1) for tensor in whole])

    @torch.no_grad()
    def write(self, row: Tensor) -> None:
        """Replace all weights."""
        parts = torch.split(row, [each.numel() for each in self._parts.values()])
        for tensor, part in zip(self._parts.values(), parts, strict=True):
            whole = part.view(tensor.shape).to(tensor.device)
            if isinstance(tensor, DTensor):
                whole = distribute_tensor(whole, tensor.device_mesh, tensor.placements)
            tensor.copy_(whole)


class BlendedWeights:
    """Merged weights of one worker and its own changes that they do not contain yet; pure arithmetic."""

    def __init__(self, shards: Sequence[RowShard], size: int) -> None:
        self._shards = shards
        self._merged = torch.zeros(size)
        self._pending: dict[int, dict[int, Tensor]] = {shard.number: {} for shard in shards}
        """Progress of own blocks by shard and block."""
        self.versions = [-1] * len(shards)

    def push(self, block: int, progress: Tensor) -> None:
        """Weights after a block of this worker less those before it."""
        for shard in self._shards:
            self._pending[shard.number][block] = progress[shard.start : shard.stop].clone()

    def take(self, arrivals: Mapping[int, Arrival]) -> None:
        """Newer versions; blocks that they have done are pending no more."""
        for number, arrival in arrivals.items():
            shard = self._shards[number]
            if arrival.weights is not None:
                self._merged[shard.start : shard.stop] = arrival.weights
                self.versions[number] = arrival.head.version
            own = self._pending[number]
            self._pending[number] = {block: tensor for block, tensor in own.items() if block not in arrival.head.done}

    def weights(self) -> Tensor:
        """Merged weights and pending progress."""
        row = self._merged.clone()
        for shard in self._shards:
            for progress in self._pending[shard.number].values():
                row[shard.start : shard.stop] += progress
        return row


class ChangeEncoder:
    """Changes of one worker on their way into files; what compression leaves out is added to the next change."""

    def __init__(self, shards: Sequence[RowShard], size: int, compression: Compression) -> None:
        self._shards = shards
        self._codecs = [codec_of(shard, compression) for shard in shards]
        self._residual = torch.zeros(size)

    def encode(self, change: Tensor, after: Tensor) -> list[dict[str, Tensor]]:
        """Tensors of each shard's file: weights before a block less those after it; of buffers the values after it."""
        files = []
        for shard, codec in zip(self._shards, self._codecs, strict=True):
            place = slice(shard.start, shard.stop)
            wanted = after[place] if shard.is_mean else change[place] + self._residual[place]
            tensors = codec.encode(wanted)
            if not shard.is_mean:
                self._residual[place] = wanted - codec.decode(tensors)
            files.append(tensors)
        return files


class WorkerStep(OuterStep):
    """Outer steps of one worker; rank 0 talks to the store. The moments of the inner optimizer start from zero."""

    def __init__(self, context: RankContext, model: nn.Module) -> None:
        """`model` is bare."""
        plan, store = context.plan, context.store
        assert plan.parameters is not None, plan.run
        assert store is not None, "a worker runs in a gang"
        self._context, self._plan, self._blocks = context, plan, RunBlocks.of(plan)
        self._row = WeightsRow(model)
        self._layout = self._row.layout(plan.run, plan.parameters.table.shard_bytes)
        self._shards = self._layout.shards()
        self._encoder = ChangeEncoder(self._shards, self._layout.size, plan.parameters.compression)
        self._blend = BlendedWeights(self._shards, self._layout.size)
        self._before = torch.zeros(0)
        """Weights that the block's progress comes on top of: those at its begin, or at the last take within it."""
        self._versions: tuple[int, ...] = ()
        self._block, self._end, self._began = -1, 0, time.monotonic()
        self._losses: list[float] = []
        self._tokens = 0
        self.saves = False
        """All blocks are done, and this worker saves the checkpoint and measures it."""
        objects = ParameterStore(store, ParameterKeys.of(plan), plan.run, context.key)
        life = f"{context.gang}.{context.generation}"
        self._exchange = StoreExchange(objects, plan, life=life) if context.rank == 0 else None

    def agree(self, norm: float, *, loss: float, weight: float, device: torch.device) -> float:
        """The norm of this worker alone; its loss goes with the push. Local."""
        del device
        if isfinite(loss):
            self._losses.append(loss)
        self._tokens += int(weight) if weight > self._plan.global_batch and weight.is_integer() else 0
        return norm

    def begin(self, progress: Position) -> bool:
        """Meet the other workers in the store, take the newest weights and the first block; as `advance`."""
        row = self._row.read()
        if self._exchange is not None:
            self._exchange.open(self._layout, row)
            self._exchange.start()
        return self.advance(progress)

    def step(self, *, due: bool) -> None:
        """Push the change of the block that has ended; a block that was interrupted is not pushed. Collective."""
        if not due:
            return
        after = self._row.read()
        if self._exchange is not None:
            self._push(self._exchange, after)
        self._block = -1

    def advance(self, progress: Position) -> bool:
        """Move `progress` to the next block, from the newest weights; False: this worker was asked to stop. Collective.

        Within a block, newer weights are taken now and then.
        """
        if self._block >= 0 and progress.step < self._end:
            if (progress.step - self._blocks.first_step(self._block)) % max(1, self._blocks.block_steps // TAKES) == 0:
                self._take_within_block()
            return True
        self._context.phase("exchange")
        if self._plan.world_size > 1:
            heartbeat.expect(STORE_SILENCE_SECONDS)
        what, block = self._agreed(self._next() if self._exchange is not None else (_STOP, 0))
        if what == _STOP:
            return False
        self._take_weights()
        self._versions = tuple(self._blend.versions)
        self._context.clock.switch("other")
        self._losses, self._tokens, self._began = [], 0, time.monotonic()
        if what == _END:
            self.saves, self._block = bool(block), -1
            progress.step, progress.cursor = self._blocks.steps, self._blocks.steps * self._plan.global_batch
            return True
        self._block, self._end = block, min(self._blocks.first_step(block + 1), self._blocks.steps)
        progress.step = self._blocks.first_step(block)
        progress.cursor = progress.step * self._plan.global_batch
        return True

    def finish(self, result: GangResult) -> None:
        """Tell the other workers and the servers that the checkpoint is saved; local."""
        if self._exchange is not None:
            self._exchange.finish(result)

    def close(self) -> None:
        """Send the last push and give back what was claimed; local."""
        if self._exchange is not None:
            self._exchange.close(seconds=CLOSE_SECONDS)

    def _push(self, exchange: StoreExchange, after: Tensor) -> None:
        change = self._before - after
        if not bool(torch.isfinite(change).all()):
            raise NonFiniteError(f"block {self._block}: the weights are not finite; lower the rate, or clip gradients")
        changes = self._encoder.encode(change, after)
        self._blend.push(self._block, -change)
        push = BlockPush(
            run=self._plan.run, block=self._block, attempt=1, worker=self._plan.worker, versions=self._versions,
            samples=self._blocks.samples(self._block), tokens=self._tokens,
            loss=fsum(self._losses) / len(self._losses) if self._losses else None,
            seconds=round(time.monotonic() - self._began, 3), silent_seconds=0.0, wire_bytes=(0, 0), digests=(),
        )  # fmt: skip
        exchange.send(push, changes)
        self._context.events.emit("block_pushed", step=self._end, block=self._block, versions=list(self._versions))

    def _next(self) -> tuple[int, int]:
        """What this worker does next, and the block."""
        exchange = self._exchange
        assert exchange is not None, "rank 0 has it"
        waits = False
        while not self._context.stop_asked:
            if (block := exchange.take_block()) is not None:
                return _TRAIN, block
            if exchange.saves or exchange.is_over:
                return _END, int(exchange.saves)
            if not waits and exchange.silent_seconds > 2 * WAIT_SECONDS:
                waits = True
                self._context.events.emit("store_silent", step=self._end, seconds=exchange.silent_seconds)
            exchange.wait(WAIT_SECONDS)
            heartbeat.beat(phase="exchange")
        return _STOP, 0

    def _agreed(self, own: tuple[int, int]) -> tuple[int, int]:
        """What rank 0 says."""
        if self._plan.world_size == 1:
            return own
        word = torch.tensor(own)
        dist.broadcast(word, src=0, group=self._context.groups.control)
        return int(word[0]), int(word[1])

    def _take_within_block(self) -> None:
        """Take what was merged since, if anything was, and keep the progress of the block. Collective."""
        arrived, _ = self._agreed((int(self._exchange is not None and self._exchange.has_arrivals), 0))
        if arrived:
            self._context.phase("exchange")
            after = self._row.read()
            self._take_weights(after - self._before if self._exchange is not None else None)
            self._context.clock.switch("other")

    def _take_weights(self, progress: Tensor | None = None) -> None:
        """Blend what arrived with the `progress` of a block that has begun, in all ranks."""
        row = torch.empty(self._layout.size)
        if self._exchange is not None:
            arrivals = self._exchange.take_arrivals()
            for shard, arrival in arrivals.items():
                if arrival.damage:
                    self._context.events.emit("version_damaged", shard=shard, reason=arrival.damage)
            self._blend.take(arrivals)
            self._before = self._blend.weights()
            row = self._before if progress is None else self._before + progress
        if self._plan.world_size > 1:
            dist.broadcast(row, src=0, group=self._context.groups.control)
        self._row.write(row)
