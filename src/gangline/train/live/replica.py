"""A rank of live replicas: it trains until it is done, through as many generations as that takes.

Recovery sends the newest complete state in the memory of the living ranks to all ranks. A rank holds a *piece* of the
state: the whole model under DDP, a shard of it under HSDP. Each piece is on one rank of each replica and is sent
between these ranks only.
"""

import gc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.checkpoint.peers import Peers
from gangline.checkpoint.state import initialise_optimizer, live_state, restore_numbers
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.optim.executors.rank_updates import local_part
from gangline.spec.mesh import Mesh
from gangline.train import heartbeat
from gangline.train.live.rejoin import await_next_generation, rejoin
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.engine import TrainingEngine
from gangline.train.loop.random_state import generator_state, restore_generators, seed_everything
from gangline.train.loop.sample_order import next_positions
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import Meshes
from gangline.train.runtime.error_classification import describe, is_peer_loss
from gangline.train.runtime.torch_compat import abort_all_groups, forget_groups


class Replica:
    """State of this process that outlives its gangs."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._environment = replace(RankEnvironment.read(), generation=context.generation)
        self._retained = RetainedState()
        self._engine: TrainingEngine | None = None

    def train(self, attempt: Callable[[], int]) -> int:
        """Call `attempt`, which builds a training and calls `begin`, until it returns without losing a peer."""
        while True:
            try:
                return attempt()
            except Exception as error:
                if not is_peer_loss(error):
                    raise
                lost_at, reason = time.monotonic(), describe(error)
            self._leave(reason)
            self._release_groups()
            self._rejoin(reason)
            self._context.events.emit("met_again", seconds=time.monotonic() - lost_at)

    def begin(self, engine: TrainingEngine) -> None:
        """Restore a new training from the living ranks, or else from the newest checkpoint. Collective."""
        if recover(self._context, engine, self._retained):
            self._engine = engine
            cursor, skipped, _ = engine.next_samples
            if self._retained.step >= 0 and engine.has_more:
                _, after = next_positions(cursor, self._context.plan.global_batch, skipped)
                self._context.events.emit("redone", step=engine.progress.step + 1, samples=[cursor, after])
            self._retained = RetainedState()
            heartbeat.beat(engine.progress.step)
            engine.save_again()
        else:
            engine.resume()
            self._engine = engine
            self._context.redone_until = max(self._context.redone_until, self._retained.step)

    def _leave(self, reason: str) -> None:
        """Retain the state and end the training."""
        context, engine, self._engine = self._context, self._engine, None
        if engine is not None:
            self._retained = RetainedState.of(engine)
        context.events.emit("peer_lost", step=max(self._retained.step, 0), reason=reason)
        abort_all_groups()
        if engine is not None:
            engine.abandon()
        context.memories.clear()
        context.waits.take()

    def _release_groups(self) -> None:
        """Close the connections of all groups, so that peers that wait for this rank notice.

        They close with the last reference, and a training has reference cycles.
        """
        meshes, self._context.meshes = self._context.meshes, Meshes()
        for mesh in (meshes.parameters, meshes.sequence, meshes.experts):
            if mesh is not None:
                forget_groups(mesh)
        del self._context.groups, meshes
        gc.collect()

    def _rejoin(self, reason: str) -> None:
        """Join the next generation in the same process, as the same rank, with new groups."""
        context = self._context
        context.phase("rendezvous")
        self._environment, context.groups = rejoin(
            await_next_generation(self._environment, reason), context.plan.device
        )
        context.meshes = Meshes.of(context.plan, context.rank)
        context.generation = self._environment.generation
        context.events.next_generation(context.generation)


NO_STEP = -1


@dataclass(slots=True)
class RetainedState:
    """State of a training on one rank after its last finished step: all that a checkpoint would hold."""

    numbers: dict[str, Any] = field(default_factory=dict)
    """Plain JSON data, equal on all ranks that finished the same step."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """Alias those of the training: whole, or this rank's shards."""
    generators: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Random generators of this rank, by the step after which they were taken."""

    @property
    def step(self) -> int:
        """Last finished step; `NO_STEP` if there is none."""
        return int(self.numbers["progress"]["step"]) if self.numbers else NO_STEP

    @staticmethod
    def of(engine: TrainingEngine) -> "RetainedState":
        """Take the state of a training that was interrupted at any point; local.

        Nothing where the interruption came within a step of an optimizer that exchanges updates.
        """
        if not getattr(engine.optimizer, "is_whole", True):
            return RetainedState()
        engine.update.buffers.restore()
        state, progress = live_state(engine.wrapped.bare, engine.optimizer), engine.current_progress()
        numbers = {
            "progress": progress.numbers(),
            "optimizer": state.numbers,
            "checkpoint": engine.saves.last_key,
        }
        before_step, before = engine.generator_snapshot or (-1, {})
        now = progress.step + (before_step == progress.step)  # an interrupted step has drawn all its numbers
        own = {
            name: local_part(tensor.detach()) for name, tensor in state.tensors.items()
        }  # without a mesh, which would hold connections
        return RetainedState(numbers, own, {now: generator_state()} | {before_step: before})

    def open(self, engine: TrainingEngine, names: Collection[str]) -> dict[str, Tensor]:
        """Restore numbers and optimizer state of a new `engine`; returns those of its tensors that `names` has, in
        order, to be filled; local."""
        model, optimizer = engine.wrapped.bare, engine.optimizer
        initialise_optimizer(model, optimizer, names)
        restore_numbers(model, optimizer, self.numbers["optimizer"], file="memory of a living rank")
        engine.restore(TrainingProgress.of(self.numbers["progress"]))
        engine.saves.last_key = self.numbers["checkpoint"]
        tensors = live_state(model, optimizer).tensors
        return {name: tensors[name] for name in sorted(tensors.keys() & set(names))}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Copy the retained tensors into `tensors`; local."""
        with torch.no_grad():
            for name, tensor in tensors.items():
                local_part(tensor).copy_(self.tensors[name])


Piece = tuple[int, ...]


def recover(context: RankContext, engine: TrainingEngine, retained: RetainedState) -> bool:
    """Restore the newest state that the ranks hold completely in memory; False if they hold none. Collective.

    Ranks with the same piece are equal bit for bit afterwards. JSON and tensors are sent.
    """
    peers = Peers(context.groups.checkpoint)
    steps = [int(step) for step in peers.gather(retained.step)]
    pieces = [piece_of(context.plan.mesh, rank) for rank in range(context.plan.world_size)]
    newest, sources = newest_whole(steps, pieces)
    if newest == NO_STEP:
        return False
    began, first, source = time.monotonic(), min(sources.values()), sources[pieces[context.rank]]
    state = RetainedState(numbers=peers.broadcast(retained.numbers if context.rank == first else None, source=first))
    names = peers.union(dict.fromkeys(retained.tensors, True) if context.rank in sources.values() else {})
    tensors = state.open(engine, names)  # owners of matrices have state that others lack
    if context.rank == source:
        retained.fill(tensors)
    group, parts = context.meshes.group("dp_replicate"), [local_part(tensor.detach()) for tensor in tensors.values()]
    for part in parts:
        dist.broadcast(part, source, group=group)
    size = sum(part.nbytes for part in parts)
    _restore_generators(context, engine, retained, newest)
    context.events.emit(
        "healed", step=newest, cursor=engine.progress.cursor, source=source, had=retained.step, steps=steps,
        size_bytes=size, seconds=time.monotonic() - began,
    )  # fmt: skip
    return True


def piece_of(mesh: Mesh, rank: int) -> Piece:
    """Piece that `rank` holds: equal for all ranks that differ only in their replica."""
    return tuple(place for axis, place in mesh.coordinates(rank).items() if axis != "dp_replicate")


def newest_whole(steps: Sequence[int], pieces: Sequence[Piece]) -> tuple[int, Mapping[Piece, int]]:
    """Newest step of which every piece is retained, and a rank for each piece; `NO_STEP` if there is none.

    An interrupted step may be finished on some ranks only, so that one piece is newer than every other.

    Args:
        steps: By rank, the last step that it retained.
        pieces: By rank, the piece that it holds.
    """
    retained = {piece: {step for step, its in zip(steps, pieces, strict=True) if its == piece} for piece in pieces}
    newest = max(set.intersection(*retained.values()), default=NO_STEP)
    ranks = [rank for rank, step in enumerate(steps) if step == newest]
    return newest, {pieces[rank]: rank for rank in reversed(ranks)}


def _restore_generators(context: RankContext, engine: TrainingEngine, retained: RetainedState, step: int) -> None:
    """Restore this rank's generators as of `step`, or seed new ones if this rank was replaced."""
    own = retained.generators.get(step)
    if own:
        restore_generators(own)
        return
    seed_everything(engine.job.seed, rank=context.draws_as, step=step)
    context.events.emit("reseeded", step=step, reason="this rank was replaced, and its generators are lost")
