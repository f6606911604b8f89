"""torch's own PowerSGD beside ours, on ranks."""

from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from tests.train.parallel.compress.worked import bucket_of, gradients
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.compressors import PowerSGD

NAMES = ("wide", "bias")


def powersgd_beside_torchs(steps=4):
    """Averages of a matrix and a vector by ours and by torch's hook, from the same first factor."""
    theirs = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, random_seed=0)
    theirs.iter = 2
    ours = PowerSGD(GradientCollectives(None, WaitMeter()), rank=2, seed=1)
    columns = gradients(NAMES, rank=0, step=0)["wide"].shape[1]
    torch.manual_seed(np.random.RandomState(0).randint(1_000_000_000))  # as torch's hook draws
    ours.load({"factor/wide": torch.randn(1, columns, 2)[0]})
    found = []
    for step in range(steps):
        mine, other = (bucket_of(gradients(NAMES, rank=dist.get_rank(), step=step)) for _ in range(2))
        ours.average(mine).wait()
        powerSGD_hook(theirs, as_torch_sees(other)).wait()
        found.append((mine.flat, other.flat))
    return found


def as_torch_sees(bucket):
    return SimpleNamespace(
        buffer=lambda: bucket.flat, index=lambda: 0, is_last=lambda: True,
        gradients=lambda: [piece.grad for piece in bucket.pieces],
    )  # fmt: skip
