"""What the tests of compression run on ranks: gradients of a made-up model, bucket by bucket."""

import torch
import torch.distributed as dist

from gangline.spec.plan import Compression
from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.compress.bucket import Bucket, Piece
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.factory import make_compressor

SHAPES = {"embed": (40, 24), "wide": (16, 64), "bias": (64,), "norm": (7,), "last": (1, 24)}


def gradient(name: str, *, rank: int, step: int) -> torch.Tensor:
    """Heavy-tailed, the same for the same question."""
    generator = torch.Generator().manual_seed(hash((len(name), ord(name[0]), rank, step)) % 2**31)
    return torch.randn(SHAPES[name], generator=generator) ** 3


def gradients(names, *, rank: int, step: int) -> dict[str, torch.Tensor]:
    return {name: gradient(name, rank=rank, step=step) for name in names}


def bucket_of(tensors: dict[str, torch.Tensor]) -> Bucket:
    flat = torch.cat([each.reshape(-1) for each in tensors.values()])
    parts = torch.split(flat, [each.numel() for each in tensors.values()])
    return Bucket(
        flat, [Piece(name, part.view(tensors[name].shape)) for name, part in zip(tensors, parts, strict=True)]
    )


def averages(compression: Compression, layouts, *, load_at: int | None = None):
    """Run one step for each layout (tuple of buckets of names); what each gave, and the last state.

    At `load_at` a fresh compressor goes on from the state of the one before.
    """
    wire, rank = GradientCollectives(None, WaitMeter()), dist.get_rank()
    compressor, found = make_compressor(compression, wire, seed=3), []
    for step, layout in enumerate(layouts):
        if step == load_at:
            state = {name: each.clone() for name, each in compressor.state().items()}
            compressor = make_compressor(compression, wire, seed=3)
            compressor.load(state)
        found.append(one_step(compressor, layout, rank, step))
    return found, {name: each.clone() for name, each in compressor.state().items()}


def one_step(compressor, layout, rank, step):
    found = {}
    for names in layout:
        bucket = bucket_of(gradients(names, rank=rank, step=step))
        done = compressor.average(bucket)
        done.wait()
        found |= {piece.name: piece.grad.clone() for piece in bucket.pieces}
    return found
