"""Recovery of live replicas: the newest state that the living ranks have whole is sent to all ranks.

What ranks hold is in pieces: the whole model under DDP, shards of it under HSDP. Each piece is on as many ranks as
there are replicas, and travels between those alone.
"""

import time
from collections.abc import Mapping, Sequence

import torch.distributed as dist
from torch import Tensor

from gangline.checkpoint.peers import Peers
from gangline.spec.mesh import Mesh
from gangline.train.live.retained_state import NO_STEP, RetainedState
from gangline.train.loop.engine import TrainingEngine
from gangline.train.loop.random_state import restore_generators, seed_everything
from gangline.train.parallel.local_sgd import local
from gangline.train.runtime.context import RankContext

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
