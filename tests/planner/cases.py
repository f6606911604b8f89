"""Lines and inventories that planner tests share."""

from gangline.spec.inventory import Devices, Inventory
from gangline.spec.line import Line, MeshTable, ProjectTable, TrainTable
from gangline.spec.profile import ModelProfile
from gangline.spec.site import Site

SMALL = ModelProfile(parameters=875_264, origin="inspected")
USABLE = (80e9 - 4e9) / 1.1
"""Of a GPU of 80 GB with the default reserve and margin."""


def line(*, strategy: str = "auto", ranks="auto", batch: int = 16, micro="auto", steps: int = 120, **train) -> Line:
    mesh = train.pop("mesh", MeshTable(micro_batch=micro))
    table = TrainTable(steps=steps, global_batch=batch, strategy=strategy, ranks=ranks, mesh=mesh, **train)
    return Line(project=ProjectTable(name="demo", task="model:Demo"), train=table)


def cpu(cores: int = 2, memory: float = 8e9) -> Inventory:
    return Inventory(cores=cores, memory_bytes=int(memory), origin="this machine")


def gpus(count: int, nodes: int = 1, memory: float = 80e9, name: str = "h100") -> Inventory:
    device = Devices(kind="cuda", name=name, memory_bytes=int(memory), count=count)
    return Inventory(num_nodes=nodes, cores=64, memory_bytes=10**12, devices=(device,))


def model_of(devices: float) -> ModelProfile:
    """A model whose state fills so many of these GPUs."""
    return ModelProfile(parameters=int(devices * USABLE / 16), origin="inspected")


SITE = Site()
