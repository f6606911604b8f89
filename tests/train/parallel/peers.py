"""Peers that do not exist: one process sees what each rank of a gang would hold, and collectives do nothing."""

from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def made_up(**axes):
    """A mesh over `axes` on which this process is rank 0."""
    world = 1
    for degree in axes.values():
        world *= degree
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        yield init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    finally:
        dist.destroy_process_group()
