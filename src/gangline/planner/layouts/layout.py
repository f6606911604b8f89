"""Layout: a strategy with its mesh degrees; those that share a batch, and the other sizes of an elastic gang."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from math import gcd

from gangline.errors import ConfigError
from gangline.planner.layouts.degrees import expert_mesh, tensor_mesh
from gangline.planner.layouts.pipeline import pipeline_mesh, three_axis_mesh
from gangline.planner.pool import Pool, choose_world, micro_batches, num_nodes
from gangline.spec.config.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Size
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import (
    COPIES,
    FSDP,
    ONE_RANK,
    SHARDS,
    STRATEGIES,
    Strategy,
    StrategyTraits,
    Wrapping,
    label_of,
    names,
    strategy_of,
    traits_of,
    wrapping_of,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A strategy and its degrees, by the name people see."""

    strategy: Strategy
    mesh: Mesh

    @staticmethod
    def by_degrees(mesh: Mesh) -> "Layout":
        """The strategy that these degrees amount to."""
        return Layout(strategy_of(mesh), mesh)

    @property
    def name(self) -> str:
        """`none`, `ddp-2`, `fsdp-16`, `hsdp-2x8`, `tp-4x8`."""
        return label_of(self.strategy, self.mesh)

    @property
    def traits(self) -> StrategyTraits:
        """Traits of its strategy."""
        return STRATEGIES[self.strategy]

    @property
    def wrapping(self) -> Wrapping:
        """How its strategy wraps the model."""
        return wrapping_of(self.strategy, self.mesh)

    @property
    def shards(self) -> int:
        """Ranks that share the weights of a stage; 1: each has them whole."""
        return self.mesh.dp_shard * self.mesh.cp if self.wrapping.shards else 1

    @property
    def replicas(self) -> int:
        """Groups of ranks that have all shards; each averages its gradients with the others."""
        return self.mesh.dp_replicate

    @property
    def update_mesh(self) -> Mesh:
        """Degrees over which updates of matrices are shared; replicas that meet rarely make all of their own."""
        traits = traits_of(self.strategy)
        return replace(self.mesh, dp_replicate=1) if traits and traits.averages_rarely else self.mesh

    @property
    def num_axes(self) -> int:
        """Axes with more than one rank."""
        return self.mesh.num_axes


@dataclass(frozen=True, slots=True)
class WrappedLayout(Layout):
    """A layout of the search by formula, which weighs every wrapping on all degrees, also those that no rank here runs.

    The strategy is the one by which ranks run it, if they do.
    """

    wrapping: Wrapping = field()
    """How data-parallel ranks hold it: copies, copies that share the optimizer, shards gathered once or each pass."""

    @classmethod
    def of(cls, mesh: Mesh, wrapping: Wrapping) -> "WrappedLayout":
        """The layout with these degrees."""
        plain = strategy_of(mesh)
        traits = STRATEGIES[plain]
        if traits.cuts_model or traits.wrapping in (None, wrapping):
            return cls(plain, mesh, wrapping)
        same = (each.name for each in STRATEGIES.values() if each.axes == traits.axes and each.wrapping == wrapping)
        return cls(next(same, plain), mesh, wrapping)

    @property
    def num_axes(self) -> int:
        """Axes with more than one rank, and the groups of experts: the search has plans that differ in these alone."""
        return self.mesh.num_axes + (self.mesh.ep > 1)

    @property
    def name(self) -> str:
        """`fsdp-16`, `tp2 zero2-8`, `pp2 zero2-2x4`, `tp8 rep2`, `ddp-16`; degrees that cut the model come first."""
        cuts = self.mesh.cuts
        return f"{cuts} {self._data(alone=not cuts)}".strip()

    def _data(self, *, alone: bool) -> str:
        mesh, word = self.mesh, WRAPPING_WORDS[self.wrapping]
        if not self.wrapping.shards:
            if mesh.dp_replicate == 1:
                return ONE_RANK.name if alone else ""
            copies = word if alone or self.wrapping.shares_optimizer else "rep"
            return f"{copies}-{mesh.dp_replicate}" if copies == word else f"{copies}{mesh.dp_replicate}"
        if mesh.dp_replicate == 1:
            return f"{word}-{mesh.dp_shard}" if mesh.dp_shard > 1 else word
        hybrid = strategy_of(mesh) if alone and self.wrapping == FSDP else word
        return f"{hybrid}-{mesh.dp_replicate}x{mesh.dp_shard}"


WRAPPING_WORDS = {each.wrapping: each.name for each in reversed(STRATEGIES.values()) if each.wrapping is not None}
"""Strategy by which a wrapping is named; of two the first one of the table."""


def program_decides(line: Line) -> bool:
    """A program of the line's own that is left to itself: how it trains is not the planner's to choose."""
    return line.project.command is not None and line.train.strategy == "auto"


def display_name(line: Line, layout: Layout) -> str:
    """What people see of `layout`: of a program that decides itself the number of its processes, and no strategy."""
    if not program_decides(line):
        return layout.name
    count = layout.mesh.world_size
    return "1 process" if count == 1 else f"{count} processes"


def data_parallel_layouts(line: Line, pool: Pool, profile: ModelProfile | None) -> list[Layout]:
    """Every way to share a batch over as many ranks as there are; in the fixed order.

    Those that need less traffic come first, but for two: zero2 holds more than fsdp and sends less, which only a
    forecast can weigh, and zero1, which holds more and sends no less, is for models that cannot be sharded. A program
    that decides itself gets its processes, and a `Session` in it copies of the model.
    """
    world = choose_world(line, pool)
    if world == 1:
        return [layout_of(ONE_RANK.name, 1)]
    if program_decides(line):
        return [layout_of(COPIES.name, world)]
    nodes = num_nodes(pool, world)
    considered = [each for each in STRATEGIES.values() if each.auto_order]
    layouts = [
        layout_of(each.name, world, nodes)
        for each in sorted(considered, key=lambda each: each.auto_order or 0)
        if each.layout != "replicas_of_shards" or 1 < nodes < world
    ]
    return [*layouts, *_expert_layouts(line, world, profile), layout_of(ONE_RANK.name, 1)]


def _expert_layouts(line: Line, world: int, profile: ModelProfile | None) -> list[Layout]:
    """Experts dealt over ranks that share data, of a task whose model has experts for them."""
    if profile is None or not profile.experts or "ep" in profile.obstacles or line.project.task is None:
        return []
    return [Layout("ep", expert_mesh(world, profile))] if gcd(world, profile.experts) > 1 else []


def layout_of(strategy: str, world: int, nodes: int = 1, profile: ModelProfile | None = None) -> Layout:
    """Degrees of a named strategy on `world` ranks of `nodes` nodes.

    Raises:
        ConfigError: The strategy has no degrees of its own, or none for these ranks and this model.
    """
    traits = traits_of(strategy)
    if traits is None:
        raise ConfigError(f'train.strategy: "{strategy}" has no degrees of its own; {", ".join(names())} have')
    return Layout(traits.name, _mesh(traits, world, nodes, profile))


def _mesh(traits: StrategyTraits, world: int, nodes: int, profile: ModelProfile | None) -> Mesh:
    asked = f'train.strategy: "{traits.name}" wants'
    if traits.layout == "workers":
        raise ConfigError(f'"{traits.name}" has workers, each with a plan of its own, and no degrees')
    if traits.layout == "replicas_of_shards" and nodes < 2:
        raise ConfigError(f'{asked} two nodes or more, found {nodes}; "{SHARDS.name}" works on one')
    if traits.layout == "node_replicas" and world < 2:
        raise ConfigError(f'{asked} two ranks or more, found {world}; "none" works on one')
    replicas = nodes if nodes > 1 else world  # a replica is a node, whose ranks share the shards, or a rank
    meshes: dict[str, Callable[[], Mesh]] = {
        "one_rank": Mesh,
        "replicas": lambda: Mesh(dp_replicate=world),
        "shards": lambda: Mesh(dp_shard=world),
        "replicas_of_shards": lambda: Mesh(dp_replicate=nodes, dp_shard=world // nodes),
        "node_replicas": lambda: Mesh(dp_replicate=replicas, dp_shard=world // replicas),
        "tensor": lambda: tensor_mesh(world, nodes, profile),
        "sequence": lambda: Mesh(dp_shard=nodes, cp=world // nodes),
        "experts": lambda: expert_mesh(world, profile),
        "stages": lambda: pipeline_mesh(world, nodes, profile),
        "three_axes": lambda: three_axis_mesh(world, nodes, profile),
    }
    return meshes[traits.layout]()


def explicit_layout(line: Line) -> Layout:
    """The degrees of `train.mesh`, as the strategy they amount to."""
    return Layout.by_degrees(Mesh(**{each.name: getattr(line.train.mesh, each.name) for each in fields(Mesh)}))


def elastic_sizes(
    line: Line, *, strategy: Strategy, mesh: Mesh, micro_batch: int, holds: Callable[[Layout, int], bool]
) -> tuple[tuple[Size, ...], tuple[int, ...]]:
    """One size for each number of ranks in `train.ranks = [min, max]` that can go on with the training of `mesh`, and
    the numbers of ranks that are too few to hold the model.

    Another size takes no more at once than `micro_batch`, for more need not fit; `holds` says whether a rank of a
    layout holds passes of so many samples.
    """
    ranks = line.train.ranks
    traits = traits_of(strategy)
    if not isinstance(ranks, tuple) or (traits and traits.averages_rarely):
        return (), ()  # replicas that train apart: another number of them is another training
    worlds = [world for world in range(ranks[0], ranks[1] + 1) if world != mesh.world_size]
    meshes = [found for world in worlds if (found := _at(mesh, strategy, world)) is not None]
    shared = [each for each in meshes if _shares(line.train.global_batch, each)]
    ready = {
        each: next(
            (size for size in _sizes(line, strategy, each, micro_batch)
             if holds(Layout(_strategy(size.strategy, each), each), size.micro_batch)), None
        )
        for each in shared
    }  # fmt: skip
    too_few = tuple(each.world_size for each, size in ready.items() if size is None)
    return tuple(size for size in ready.values() if size is not None), too_few


def _at(mesh: Mesh, strategy: Strategy, world: int) -> Mesh | None:
    """`mesh` with as many data-parallel ranks as `world` gives; None: it cannot be cut so."""
    traits = traits_of(strategy)
    width, left = divmod(world, mesh.pp * mesh.cp * mesh.tp)
    if left:
        return None
    if mesh.dp_replicate > 1 and mesh.dp_shard > 1:
        replicas, left = divmod(width, mesh.dp_shard)
        found = None if left else replace(mesh, dp_replicate=replicas)
    elif mesh.dp_replicate > 1 or (traits and traits.layout in ("one_rank", "replicas")):
        found = replace(mesh, dp_replicate=width)
    elif (width * mesh.cp) % mesh.ep:
        found = None
    else:
        found = replace(mesh, dp_shard=width)
    return found


def _shares(global_batch: int, mesh: Mesh) -> bool:
    """Every rank gets a sample; a pipeline's micro-batches are all of one size."""
    evenly = global_batch % mesh.data_parallel == 0
    return evenly if mesh.pp > 1 else global_batch >= mesh.data_parallel


def _sizes(line: Line, strategy: Strategy, mesh: Mesh, micro_batch: int) -> Iterator[Size]:
    """Sizes in passes of at most `micro_batch`, the largest first."""
    named = strategy if strategy == "explicit" else _strategy(strategy, mesh)  # its name follows from its degrees
    share = -(-line.train.global_batch // mesh.data_parallel)
    divides = line.train.global_batch % mesh.data_parallel == 0
    is_auto = line.train.mesh.micro_batch == "auto"
    sizes = micro_batches(line, mesh) if divides else range(micro_batch, 0, -1)
    fewer = [size for size in sizes if size <= micro_batch] if is_auto else []
    for own in fewer or [micro_batch]:
        name = display_name(line, Layout(named, mesh))
        yield Size(name=name, strategy=named, mesh=mesh, micro_batch=min(own, share))


def _strategy(strategy: Strategy, mesh: Mesh) -> Strategy:
    """A name that fits the degrees: a single rank shares nothing, and one replica of shards is not a hybrid."""
    if mesh.world_size == 1:
        return ONE_RANK.name
    traits = traits_of(strategy)
    if traits is None or traits is ONE_RANK or (traits.layout == "replicas_of_shards" and mesh.dp_replicate == 1):
        return strategy_of(mesh)
    return strategy
