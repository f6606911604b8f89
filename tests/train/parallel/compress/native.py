"""One backward pass of a sharded model with replicas: FSDP2's own averaging, and ours without compression."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.compress.bucket import layout_of_shard
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.compressors import Uncompressed
from gangline.train.parallel.compress.factory import shard_hook
from gangline.train.parallel.data_parallel import shard


def native_and_ours():
    """Local gradients under both, by name; and names with local sizes as FSDP2 and our layout order them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "shard"))
    wire = GradientCollectives(mesh["dp_replicate"].get_group(), WaitMeter())
    layouts = []

    def ours(module, prefix):
        layouts.append(layout_of_shard(module, prefix, shards=2))
        return mesh["shard"], shard_hook(Uncompressed(wire), layouts[-1])

    native, _ = gradients(lambda module, prefix: (mesh, None))
    own, model = gradients(ours)
    return native, own, ([shapes_of(each) for each in (*model[:-1], model)], [[s for _, s in x] for x in layouts])


def gradients(mesh_and_hook):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10)), nn.Linear(10, 5), nn.Linear(5, 1))
    for name, module in [*list(model.named_children())[:-1], ("", model)]:
        mesh, hook = mesh_and_hook(module, f"{name}." if name else "")
        shard(module, mesh, precision="fp32", reshard=True, is_root=not name, waits=WaitMeter(), hook=hook)
    torch.manual_seed(dist.get_rank())
    model(torch.randn(4, 6)).pow(3).sum().backward()
    return {name: each.grad.to_local().clone() for name, each in model.named_parameters()}, model


def shapes_of(module):
    state = module._get_fsdp_state()
    (group,) = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]  # torch 2.11 has one
    return [tuple(each.padded_sharded_param_size) for each in group.fsdp_params]
