"""Recovery of live replicas: the newest state that the living ranks have whole is sent to all ranks.

What ranks hold is in pieces: the whole model under DDP, shards of it under HSDP. Each piece is on as many ranks as
there are replicas, and travels between those alone.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.checkpoint.peers import Peers
from gangline.checkpoint.state import initialise_optimizer, live_state, restore_numbers
from gangline.spec.mesh import Mesh
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.engine import TrainingEngine
from gangline.train.loop.random_state import generator_state, restore_generators, seed_everything
from gangline.train.parallel.local_sgd import local
from gangline.train.runtime.context import RankContext

NO_STEP = -1


@dataclass(slots=True)
class RetainedState:
    """Of one rank, as its last finished step left it."""

    numbers: dict[str, Any] = field(default_factory=dict)
    """Plain JSON data, equal on all ranks that finished the same step."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """They alias the training's own: whole, or this rank's shards."""
    generators: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Random generators of this rank, by the step after which they stood so."""

    @property
    def step(self) -> int:
        """Last finished one; `NO_STEP`: it knows of none."""
        return int(self.numbers["progress"]["step"]) if self.numbers else NO_STEP

    @staticmethod
    def of(engine: TrainingEngine) -> "RetainedState":
        """Of a training that was cut off, at whatever point; local."""
        engine.update.buffers.take_back()
        state, progress = live_state(engine.wrapped.bare, engine.optimizer), engine.noted()
        numbers = {
            "progress": progress.numbers(),
            "optimizer": state.numbers,
            "tensors": sorted(state.tensors),
            "checkpoint": engine.saves.last_key,
        }
        before_step, before = engine.drawn or (-1, {})
        now = progress.step + (before_step == progress.step)  # of a step that was cut off, all is drawn
        own = {name: local(tensor.detach()) for name, tensor in state.tensors.items()}  # of no mesh: it holds links
        return RetainedState(numbers, own, {now: generator_state()} | {before_step: before})

    def open(self, engine: TrainingEngine) -> dict[str, Tensor]:
        """Give the freshly built `engine` the numbers; its tensors of the same names, to be filled; local."""
        model, optimizer = engine.wrapped.bare, engine.optimizer
        initialise_optimizer(model, optimizer, self.numbers["tensors"])
        restore_numbers(model, optimizer, self.numbers["optimizer"], file="a living rank's memory")
        engine.take(TrainingProgress.of(self.numbers["progress"]))
        engine.saves.last_key = self.numbers["checkpoint"]
        tensors = live_state(model, optimizer).tensors
        return {name: tensors[name] for name in self.numbers["tensors"]}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Copy what is kept; local."""
        with torch.no_grad():
            for name, tensor in tensors.items():
                local(tensor).copy_(self.tensors[name])


Piece = tuple[int, ...]


def recover(context: RankContext, engine: TrainingEngine, kept: RetainedState) -> bool:
    """Go on from the newest state that ranks of the gang have whole in memory; False: they have none. Collective.

    Ranks that hold the same piece are equal bit for bit afterwards. What travels is JSON and tensors.
    """
    peers = Peers(context.groups.checkpoint)
    steps = [int(step) for step in peers.gather(kept.step)]
    pieces = [piece_of(context.plan.mesh, rank) for rank in range(context.plan.world_size)]
    newest, sources = newest_whole(steps, pieces)
    if newest == NO_STEP:
        return False
    began, first, source = time.monotonic(), min(sources.values()), sources[pieces[context.rank]]
    known = RetainedState(numbers=peers.share(kept.numbers if context.rank == first else None, source=first))
    tensors = known.open(engine)
    if context.rank == source:
        kept.fill(tensors)
    size = _broadcast(context, tensors, source)
    _restore_generators(context, engine, kept, newest)
    context.events.emit(
        "healed", step=newest, cursor=engine.progress.cursor, source=source, had=kept.step, steps=steps,
        size_bytes=size, seconds=time.monotonic() - began,
    )  # fmt: skip
    return True


def piece_of(mesh: Mesh, rank: int) -> Piece:
    """What `rank` holds: alike for all ranks that differ in their replica only."""
    return tuple(place for axis, place in mesh.coordinates(rank).items() if axis != "dp_replicate")


def newest_whole(steps: Sequence[int], pieces: Sequence[Piece]) -> tuple[int, Mapping[Piece, int]]:
    """Newest step of which every piece was kept, and by which rank; `NO_STEP`: there is none.

    A step that was cut off may be done on some ranks and not on others, so that one piece is newer than all of another.

    Args:
        steps: By rank, the last step that it kept.
        pieces: By rank, what it holds.
    """
    held = {piece: {step for step, its in zip(steps, pieces, strict=True) if its == piece} for piece in pieces}
    newest = max(set.intersection(*held.values()), default=NO_STEP)
    ranks = [rank for rank, step in enumerate(steps) if step == newest]
    return newest, {pieces[rank]: rank for rank in reversed(ranks)}


def _broadcast(context: RankContext, tensors: Mapping[str, Tensor], source: int) -> int:
    """Bytes that every holder of this rank's piece but `source` received."""
    group, parts = context.meshes.group("dp_replicate"), [local(each.detach()) for each in tensors.values()]
    for part in parts:
        dist.broadcast(part, source, group=group)
    return sum(part.nbytes for part in parts)


def _restore_generators(context: RankContext, engine: TrainingEngine, kept: RetainedState, step: int) -> None:
    """With this rank's own generators as they stood after `step`; those of a rank that was lost begin anew."""
    own = kept.generators.get(step)
    if own:
        restore_generators(own)
        return
    seed_everything(engine.course.seed, rank=context.draws_as, step=step)
    context.events.emit("reseeded", step=step, reason="this rank was lost, and its generators with it")
