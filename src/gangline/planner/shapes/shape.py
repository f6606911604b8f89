"""Shape: a strategy with its mesh degrees; the data-parallel shapes of a world size, and meshes of names."""

from dataclasses import dataclass
from math import gcd
from typing import Literal

from gangline.errors import ConfigError
from gangline.planner.axes.expert import expert_mesh
from gangline.planner.axes.pipeline import pipeline_mesh, three_axis_mesh
from gangline.planner.axes.tensor import tensor_mesh
from gangline.planner.shapes.device_pool import Pool
from gangline.planner.shapes.world_size import choose_world, num_nodes
from gangline.spec.config.line import Line, MeshTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Strategy, strategy_of
from gangline.spec.profile import ModelProfile


@dataclass(frozen=True, slots=True)
class Shape:
    """A strategy and its degrees, by the name people see."""

    strategy: Strategy
    mesh: Mesh

    @property
    def name(self) -> str:
        """`none`, `ddp-2`, `fsdp-16`, `hsdp-2x8`, `tp-4x8`."""
        if self.strategy == "none":
            return "none"
        if self.strategy == "hsdp" or (self.strategy in _LOCAL_UPDATES and self.mesh.dp_shard > 1):
            return f"{self.strategy}-{self.mesh.dp_replicate}x{self.mesh.dp_shard}"
        if self.strategy in ("tp", "cp") and self.mesh.data_parallel > 1:
            return f"{self.strategy}-{self.mesh.data_parallel}x{self.mesh.tp * self.mesh.cp}"
        if self.strategy == "pp" and self.mesh.data_parallel > 1:
            return f"pp-{self.mesh.pp}x{self.mesh.data_parallel}"
        if self.strategy == "3d":
            return "3d-" + "x".join(str(degree) for degree in self.mesh.axes.values() if degree > 1)
        return f"{self.strategy}-{self.mesh.world_size}"

    @property
    def num_axes(self) -> int:
        return sum(degree > 1 for degree in self.mesh.axes.values())


def program_decides(line: Line) -> bool:
    """A program of the line's own that is left to itself: how it trains is not the planner's to choose."""
    return line.project.command is not None and line.train.strategy == "auto"


def display_name(line: Line, shape: Shape) -> str:
    """What people see of `shape`: of a program that decides itself the number of its processes, and no strategy."""
    if not program_decides(line):
        return shape.name
    count = shape.mesh.world_size
    return "1 process" if count == 1 else f"{count} processes"


def data_parallel_shapes(line: Line, pool: Pool, profile: ModelProfile | None) -> list[Shape]:
    """Every way to share a batch over as many ranks as there are; in the fixed order.

    Those that need less traffic come first, but for two: zero2 holds more than fsdp and sends less, which only a
    forecast can weigh, and zero1, which holds more and sends no less, is for models that cannot be sharded. A program
    that decides itself gets its processes, and a `Session` in it copies of the model.
    """
    world = choose_world(line, pool)
    if world == 1:
        return [Shape("none", Mesh())]
    if program_decides(line):
        return [shape_of("ddp", world)]
    nodes = num_nodes(pool, world)
    hybrid = ["hsdp"] if 1 < nodes < world else []
    shapes = [shape_of(name, world, nodes) for name in ("ddp", *hybrid, "fsdp", "zero2", "zero1")]
    return [*shapes, *_expert_shapes(line, world, profile), Shape("none", Mesh())]


def _expert_shapes(line: Line, world: int, profile: ModelProfile | None) -> list[Shape]:
    """Experts dealt over ranks that share data, of a task whose model has experts for them."""
    if profile is None or not profile.experts or "ep" in profile.obstacles or line.project.task is None:
        return []
    return [Shape("ep", expert_mesh(world, profile))] if gcd(world, profile.experts) > 1 else []


def shape_of(strategy: str, world: int, nodes: int = 1, profile: ModelProfile | None = None) -> Shape:
    """Degrees of a named strategy on `world` ranks of `nodes` nodes."""
    simple: dict[str, Shape] = {
        "none": Shape("none", Mesh()),
        "ddp": Shape("ddp", Mesh(dp_replicate=world)),
        "zero1": Shape("zero1", Mesh(dp_replicate=world)),
        "zero2": Shape("zero2", Mesh(dp_shard=world)),
        "fsdp": Shape("fsdp", Mesh(dp_shard=world)),
        "zero3": Shape("fsdp", Mesh(dp_shard=world)),
        "cp": Shape("cp", Mesh(dp_shard=nodes, cp=world // nodes)),
    }
    if strategy in simple:
        return simple[strategy]
    if strategy == "hsdp":
        if nodes < 2:
            raise ConfigError(f'train.strategy: "hsdp" wants two nodes or more, found {nodes}; "fsdp" works on one')
        return Shape("hsdp", Mesh(dp_replicate=nodes, dp_shard=world // nodes))
    if strategy == "pp":
        return Shape("pp", pipeline_mesh(world, nodes, profile))
    if strategy == "3d":
        return Shape("3d", three_axis_mesh(world, nodes, profile))
    if strategy in ("tp", "ep"):
        in_layer = Shape("tp", tensor_mesh(world, nodes, profile)) if strategy == "tp" else None
        return in_layer or Shape("ep", expert_mesh(world, profile))
    if strategy in _LOCAL_UPDATES:
        return _local_updates(strategy, world, nodes)
    names = ", ".join(["none", "ddp", "zero1", "zero2", "fsdp", "hsdp", "tp", "cp", "ep", "pp", "3d", *_LOCAL_UPDATES])
    raise ConfigError(f'train.strategy: "{strategy}" has no degrees of its own; {names} have')


_LOCAL_UPDATES: tuple[Literal["local_sgd", "diloco"], ...] = ("local_sgd", "diloco")


def _local_updates(strategy: str, world: int, nodes: int) -> Shape:
    """A replica that goes its own way is a node, its ranks share the shards; on one node it is a rank."""
    if world < 2:
        raise ConfigError(f'train.strategy: "{strategy}" wants two ranks or more, found {world}; "none" works on one')
    replicas = nodes if nodes > 1 else world
    name = next(each for each in _LOCAL_UPDATES if each == strategy)
    return Shape(name, Mesh(dp_replicate=replicas, dp_shard=world // replicas))


def explicit_shape(line: Line) -> Shape:
    """The degrees of `train.mesh`, as the strategy they amount to."""
    table: MeshTable = line.train.mesh
    mesh = Mesh(
        pp=table.pp, dp_replicate=table.dp_replicate, dp_shard=table.dp_shard, cp=table.cp, tp=table.tp, ep=table.ep
    )
    return Shape(strategy_of(mesh), mesh)
