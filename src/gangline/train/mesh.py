"""Device meshes of a plan: one factory, so that no two places disagree about the order of axes."""

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device


def shard_mesh(mesh: Mesh, device: Device) -> DeviceMesh:
    """Mesh that `fully_shard` takes: `dp_shard`, or `dp_replicate x dp_shard`; all ranks must call."""
    if mesh.dp_replicate == 1:
        return init_device_mesh(device, (mesh.dp_shard,), mesh_dim_names=("dp_shard",))
    shape = (mesh.dp_replicate, mesh.dp_shard)
    return init_device_mesh(device, shape, mesh_dim_names=("dp_replicate", "dp_shard"))


def local_device(device: Device, local_rank: int) -> torch.device:
    """This rank's own device; a CUDA one is made the current one."""
    if device == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
