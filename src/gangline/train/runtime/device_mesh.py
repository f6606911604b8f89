"""Device meshes of a plan: one factory, so that the order of axes is defined once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device, Plan

REPLICATE, SHARD = "dp_replicate", "shard"
EXPERT_SHARD = "expert_shard"
"""The part of `shard` that `ep` does not use: ranks that hold pieces of the same experts."""


@dataclass(frozen=True, slots=True)
class Meshes:
    """Device meshes of this rank."""

    degrees: Mesh = Mesh()
    place: Mapping[str, int] = field(default_factory=dict)
    """Coordinate on each axis of the plan's mesh."""
    parameters: DeviceMesh | None = None
    sequence: DeviceMesh | None = None
    experts: DeviceMesh | None = None

    @staticmethod
    def of(plan: Plan, rank: int) -> "Meshes":
        """Create the meshes of `plan`; collective."""
        degrees = plan.mesh
        on_parameters = {
            "pp": degrees.pp,
            REPLICATE: degrees.dp_replicate,
            SHARD: degrees.dp_shard * degrees.cp,
            "tp": degrees.tp,
        }
        wanted = {name for name, degree in on_parameters.items() if degree > 1}
        if plan.wrapping.shards:
            wanted.add(SHARD)
        elif wanted == {REPLICATE}:
            wanted.clear()  # DDP alone works on the whole gang
        on_experts = {
            "pp": degrees.pp,
            REPLICATE: degrees.dp_replicate,
            EXPERT_SHARD: degrees.dp_shard * degrees.cp // degrees.ep,
            "ep": degrees.ep,
            "tp": degrees.tp,
        }
        on_sequence = {"pp": degrees.pp, "dp": degrees.data_parallel, "cp": degrees.cp, "tp": degrees.tp}
        return Meshes(
            degrees=degrees,
            place=degrees.coordinates(rank),
            parameters=_mesh(plan.device, {name: n for name, n in on_parameters.items() if name in wanted}),
            sequence=_mesh(plan.device, on_sequence) if degrees.cp > 1 else None,
            experts=_mesh(plan.device, on_experts) if degrees.ep > 1 else None,
        )

    def axis(self, name: str) -> DeviceMesh | None:
        """One-dimensional mesh of peers: `pp`, `dp_replicate`, `shard`, `tp`, `cp` or `ep`; None: degree 1."""
        root = {"cp": self.sequence, "ep": self.experts}.get(name, self.parameters)
        if root is None or name not in (root.mesh_dim_names or ()):
            return None
        return root[name]

    @property
    def data(self) -> DeviceMesh | None:
        """Mesh that averages gradients: `shard`, `dp_replicate x shard` or `dp_replicate`; None: none, or DDP."""
        if self.parameters is None:
            return None
        names = tuple(name for name in (REPLICATE, SHARD) if name in (self.parameters.mesh_dim_names or ()))
        return self.parameters[names if len(names) > 1 else names[0]] if names else None

    @property
    def expert_data(self) -> DeviceMesh | None:
        """Mesh that shards experts and averages their gradients, with `dp_replicate` first if it is above 1."""
        if self.experts is None:
            return None
        return self.experts[(REPLICATE, EXPERT_SHARD) if self.degrees.dp_replicate > 1 else EXPERT_SHARD]

    def group(self, name: str) -> ProcessGroup | None:
        """Process group of this rank's peers on an axis; None: it has no peers."""
        mesh = self.axis(name)
        if mesh is not None:
            return mesh.get_group()
        whole = prod(self.degrees.axes.values())
        return dist.group.WORLD if whole > 1 and self.degrees.axes.get(name) == whole else None


def _mesh(device: Device, degrees: Mapping[str, int]) -> DeviceMesh | None:
    if not degrees:
        return None
    return init_device_mesh(device, tuple(degrees.values()), mesh_dim_names=tuple(degrees))


def local_device(device: Device, local_rank: int) -> torch.device:
    """Device of this rank; a CUDA device becomes the current one."""
    if device == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
