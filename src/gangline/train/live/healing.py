"""A gang that met again agrees on one state: the newest that any rank kept goes to all, from memory to memory."""

import time

import torch.distributed as dist
from torch import Tensor

from gangline.checkpoint.peers import Peers
from gangline.train.context import Context
from gangline.train.live.kept import Kept
from gangline.train.loop.engine import Engine
from gangline.train.loop.random import restore_generators, seed_everything


def heal(context: Context, engine: Engine, kept: Kept) -> bool:
    """Go on from the newest state that a rank of the gang has in memory; False: none has any. Collective.

    All ranks are equal bit for bit afterwards. What travels is JSON and tensors.
    """
    peers = Peers(context.groups.checkpoint)
    steps = [int(step) for step in peers.gather(kept.step)]
    newest = max(steps)
    if newest < 0:
        return False
    began, source = time.monotonic(), steps.index(newest)
    is_source = context.rank == source
    known = Kept(numbers=peers.share(kept.numbers if is_source else None, source=source))
    tensors = known.open(engine)
    if is_source:
        kept.fill(tensors)
    size = _hand_out(tensors, source)
    _draw_on(context, engine, kept, newest)
    context.events.emit(
        "healed", step=newest, cursor=engine.progress.cursor, source=source, had=kept.step, steps=steps,
        size_bytes=size, seconds=time.monotonic() - began,
    )  # fmt: skip
    return True


def _hand_out(tensors: dict[str, Tensor], source: int) -> int:
    """Bytes that every rank but `source` received."""
    for tensor in tensors.values():
        dist.broadcast(tensor.detach(), source)
    return sum(tensor.nbytes for tensor in tensors.values())


def _draw_on(context: Context, engine: Engine, kept: Kept, step: int) -> None:
    """With this rank's own generators as they stood after `step`; those of a rank that was lost begin anew."""
    own = kept.generators.get(step)
    if own:
        restore_generators(own)
        return
    seed_everything(engine.course.seed, rank=context.draws_as, step=step)
    context.events.emit("reseeded", step=step, reason="this rank was lost, and its generators with it")
