"""The plans worth a look for one world size, and how a strategy's name becomes a mesh."""

from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.planner.pool import Pool
from gangline.planner.world import num_nodes
from gangline.spec.line import Line, MeshTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Strategy


@dataclass(frozen=True, slots=True)
class Shape:
    """A strategy and its degrees, by the name people see."""

    strategy: Strategy
    mesh: Mesh

    @property
    def name(self) -> str:
        """`none`, `ddp-2`, `fsdp-16`, `hsdp-2x8`."""
        if self.strategy == "none":
            return "none"
        if self.strategy == "hsdp":
            return f"hsdp-{self.mesh.dp_replicate}x{self.mesh.dp_shard}"
        return f"{self.strategy}-{self.mesh.world_size}"

    @property
    def num_axes(self) -> int:
        return sum(degree > 1 for degree in self.mesh.axes.values())


def data_parallel_shapes(world: int, pool: Pool) -> list[Shape]:
    """Every way to share a batch over `world` ranks; those that need less traffic first."""
    if world == 1:
        return [Shape("none", Mesh())]
    nodes = num_nodes(pool, world)
    names = ["ddp", "hsdp", "fsdp"] if 1 < nodes < world else ["ddp", "fsdp"]
    return [*(shape_of(name, world, nodes) for name in names), Shape("none", Mesh())]


def shape_of(strategy: str, world: int, nodes: int = 1) -> Shape:
    """Degrees of a named data-parallel strategy on `world` ranks of `nodes` nodes."""
    if strategy == "none":
        return Shape("none", Mesh())
    if strategy == "ddp":
        return Shape("ddp", Mesh(dp_replicate=world))
    if strategy in ("fsdp", "zero3"):
        return Shape("fsdp", Mesh(dp_shard=world))
    if strategy == "zero2":
        return Shape("zero2", Mesh(dp_shard=world))
    if strategy == "hsdp":
        if nodes < 2:
            raise ConfigError(f'train.strategy: "hsdp" wants two nodes or more, found {nodes}; "fsdp" works on one')
        return Shape("hsdp", Mesh(dp_replicate=nodes, dp_shard=world // nodes))
    raise ConfigError(f'train.strategy: "{strategy}" has no degrees of its own; none, ddp, zero2, fsdp and hsdp have')


def explicit_shape(line: Line) -> Shape:
    """The degrees of `train.mesh`, as the strategy they amount to.

    Raises:
        ConfigError: A degree above 1 on an axis that no data-parallel strategy has.
    """
    table: MeshTable = line.train.mesh
    mesh = Mesh(
        pp=table.pp, dp_replicate=table.dp_replicate, dp_shard=table.dp_shard, cp=table.cp, tp=table.tp, ep=table.ep
    )
    for axis in ("pp", "cp", "tp", "ep"):
        if getattr(mesh, axis) > 1:
            raise ConfigError(
                f"train.mesh.{axis}: wanted 1, found {getattr(mesh, axis)}: the runtime does not cut along {axis} yet; "
                "dp_replicate and dp_shard work"
            )
    if mesh.dp_shard > 1:
        return Shape("hsdp" if mesh.dp_replicate > 1 else "fsdp", mesh)
    return Shape("ddp" if mesh.dp_replicate > 1 else "none", mesh)
