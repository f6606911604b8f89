"""Parallel strategies: the one table of their traits, read by the rules of lines, planner, measure and train.

A row of `STRATEGIES` holds what does not follow from the degrees of a mesh; what does (bytes of the state on a rank,
bytes of a collective) the planner computes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from gangline.errors import ConfigError
from gangline.spec.mesh import Axis, Mesh

Strategy = Literal[
    "none",
    "ddp",
    "zero1",
    "zero2",
    "fsdp",
    "hsdp",
    "tp",
    "cp",
    "ep",
    "pp",
    "3d",
    "local_sgd",
    "diloco",
    "parameter_server",
    "explicit",
]
"""Names in the order of `STRATEGIES`; `explicit` has no row: its degrees define it."""
MODEL_AXES: tuple[Literal["pp", "cp", "tp", "ep"], ...] = ("pp", "cp", "tp", "ep")
"""Axes that cut the model itself."""
Layout = Literal[
    "one_rank", "replicas", "shards", "replicas_of_shards", "node_replicas", "tensor", "sequence", "experts", "stages",
    "three_axes", "workers",
]  # fmt: skip
"""How degrees follow from a world size; `planner.layouts.layout` has a case for each."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How the data-parallel axes wrap a model, inside the other axes."""

    kind: Literal["none", "ddp", "replicate", "shard"]
    """No wrapper; `DistributedDataParallel`; torch's `replicate`; `fully_shard`."""
    reshards: bool = False
    """A block frees its parameters after forward and gathers them again for backward."""
    optimizer_axes: tuple[Axis, ...] = ()
    """They divide the optimizer state, too; updated parameters are gathered over them."""

    @property
    def shards(self) -> bool:
        """Parameters are sharded by FSDP2."""
        return self.kind == "shard"

    @property
    def is_ddp(self) -> bool:
        """The model is wrapped by DistributedDataParallel."""
        return self.kind == "ddp"

    @property
    def shares_optimizer(self) -> bool:
        """Each rank updates a part of the parameters and sends them to the others."""
        return bool(self.optimizer_axes)

    @property
    def gathers(self) -> int:
        """All-gathers of a block in one forward and backward pass."""
        return self.shards + self.reshards

    @property
    def is_composable(self) -> bool:
        """It hooks each block, so that all ranks must run blocks in the same order."""
        return self.kind in ("shard", "replicate")


NO_WRAPPING, DDP, REPLICATE = Wrapping("none"), Wrapping("ddp"), Wrapping("replicate")
ZERO1 = Wrapping("ddp", optimizer_axes=("dp_replicate",))
ZERO2, FSDP = Wrapping("shard"), Wrapping("shard", reshards=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyTraits:
    """Traits of one strategy."""

    name: Strategy
    aliases: tuple[str, ...] = ()
    """Other names that a line may use."""
    axes: frozenset[Axis]
    """Axes whose degrees may be above 1."""
    layout: Layout
    wrapping: Wrapping | None = None
    """While no axis cuts the model; None: it follows from the degrees."""
    replicas: Literal["none", "every_step", "outer_steps"] = "none"
    """When replicas average: there is one replica; gradients in every step; parameters every `outer_steps` steps."""
    has_buckets: bool = False
    """Gradients are averaged in buckets of `train.mesh.bucket_bytes`, which stay allocated."""
    label: tuple[tuple[Axis, ...], ...] = ()
    """Axes of each number in `name-AxB`; empty: the only number is the world size."""
    label_if: tuple[Axis, ...] = ()
    """The label has these numbers where the product of these degrees is above 1, else the world size; empty: always."""
    label_drops_ones: bool = False
    auto_order: int | None = None
    """Place among the shapes that the planner considers for "auto", least traffic first; None: it is not among them, as
    it has to be named, cuts the model, or has one rank."""
    needs: tuple[str, ...] = ()
    """Keys of `train.compression` that it requires."""
    carries_compression: bool = True
    """Replicas may compress what they exchange."""
    carries_live_recovery: bool = False
    """Other ranks hold the state of a lost rank, so that the others continue without it."""

    @property
    def cuts_model(self) -> bool:
        """It has an axis that divides the model, not the batch."""
        return not self.axes.isdisjoint(MODEL_AXES)

    @property
    def shares_batch_over_all(self) -> bool:
        """Each rank has its own samples: the batch is a multiple of the world size."""
        return bool(self.axes) and not self.cuts_model

    @property
    def has_replicas(self) -> bool:
        """More than one rank or group of ranks holds the whole model."""
        return self.replicas != "none"

    @property
    def averages_rarely(self) -> bool:
        """Replicas train apart between outer steps, so that a gang cannot continue with another number of replicas."""
        return self.replicas == "outer_steps"

    @property
    def has_outer_optimizer(self) -> bool:
        """Replicas exchange their changes through an outer optimizer with a rate of its own."""
        return "outer_lr" in self.needs


_BATCH: tuple[Axis, ...] = ("dp_replicate", "dp_shard")
_HYBRID: tuple[tuple[Axis, ...], ...] = (("dp_replicate",), ("dp_shard",))


def _row(name: Strategy, layout: Layout, *axes: Axis, **more: object) -> StrategyTraits:
    return StrategyTraits(name=name, layout=layout, axes=frozenset(axes), **more)  # type: ignore[arg-type]  # fields


STRATEGIES: dict[str, StrategyTraits] = {
    each.name: each
    for each in (
        _row("none", "one_rank", wrapping=NO_WRAPPING),
        _row("ddp", "replicas", "dp_replicate", wrapping=DDP, replicas="every_step", has_buckets=True, auto_order=1,
             carries_live_recovery=True),
        _row("zero1", "replicas", "dp_replicate", wrapping=ZERO1, replicas="every_step", has_buckets=True,
             auto_order=5),
        _row("zero2", "shards", "dp_shard", wrapping=ZERO2, auto_order=4),
        _row("fsdp", "shards", "dp_shard", aliases=("zero3",), wrapping=FSDP, auto_order=3),
        _row("hsdp", "replicas_of_shards", "dp_replicate", "dp_shard", wrapping=FSDP, replicas="every_step",
             label=_HYBRID, auto_order=2, carries_live_recovery=True),
        _row("tp", "tensor", "dp_shard", "tp", label=(_BATCH, ("tp", "cp")), label_if=_BATCH),
        _row("cp", "sequence", "dp_shard", "cp", label=(_BATCH, ("tp", "cp")), label_if=_BATCH),
        _row("ep", "experts", "dp_shard", "ep"),
        _row("pp", "stages", "pp", "dp_shard", label=(("pp",), _BATCH), label_if=_BATCH),
        _row("3d", "three_axes", "pp", "dp_shard", "tp",
             label=(("pp",), ("dp_replicate",), ("dp_shard",), ("cp",), ("tp",)), label_drops_ones=True),
        _row("local_sgd", "node_replicas", "dp_replicate", "dp_shard", replicas="outer_steps", has_buckets=True,
             label=_HYBRID, label_if=("dp_shard",), needs=("outer_steps",), carries_compression=False),
        _row("diloco", "node_replicas", "dp_replicate", "dp_shard", replicas="outer_steps", has_buckets=True,
             label=_HYBRID, label_if=("dp_shard",), needs=("outer_steps", "outer_lr")),
        _row("parameter_server", "workers", "dp_replicate", "dp_shard", replicas="outer_steps",
             needs=("outer_steps", "outer_lr")),
    )
}  # fmt: skip
"""Traits by name, in the order of messages."""
assert (*STRATEGIES, "explicit") == get_args(Strategy)
COPIES, SHARDS, ONE_RANK = STRATEGIES["ddp"], STRATEGIES["fsdp"], STRATEGIES["none"]
"""Strategies that the planner and proofs choose by themselves."""
WORKERS = STRATEGIES["parameter_server"]
"""Gangs that train apart, each under a strategy of its own, and servers that merge."""
_BY_NAME = STRATEGIES | {alias: each for each in STRATEGIES.values() for alias in each.aliases}


def traits_of(name: str) -> StrategyTraits | None:
    """Row of a name or an alias; None: `auto`, `explicit`, or an unknown name."""
    return _BY_NAME.get(name)


def names(has: Callable[[StrategyTraits], bool] = lambda _: True, *, aliases: bool = False) -> tuple[str, ...]:
    """Names of the rows for which `has` is true, in table order; aliases come before their name."""
    return tuple(
        name for each in STRATEGIES.values() if has(each) for name in (*(each.aliases if aliases else ()), each.name)
    )


def strategy_of(mesh: Mesh) -> Strategy:
    """Strategy of these degrees; any product of two axes that cut the model is `3d`."""
    cuts: list[Strategy] = [axis for axis in MODEL_AXES if getattr(mesh, axis) > 1]
    if cuts:
        return cuts[0] if len(cuts) == 1 else "3d"
    if mesh.dp_shard > 1:
        return "hsdp" if mesh.dp_replicate > 1 else "fsdp"
    return "ddp" if mesh.dp_replicate > 1 else "none"


def wrapping_of(strategy: str, mesh: Mesh) -> Wrapping:
    """How `strategy`, which may be `explicit`, wraps a model on these degrees."""
    traits = traits_of(strategy)
    own = traits.wrapping if traits else None
    if mesh.dp_shard * mesh.cp > 1 or (own and own.shards):
        if mesh.pp > 1:
            return ZERO2
        return own if own and own.shards else FSDP
    if mesh.dp_replicate == 1 or (traits and traits.averages_rarely):
        return NO_WRAPPING
    if mesh.tp > 1 or mesh.pp > 1:  # DDP silently loses gradients of both
        return REPLICATE
    return own if own and own.is_ddp else DDP


def effective_strategy(strategy: Strategy, mesh: Mesh) -> Strategy:
    """`strategy` itself; that of an explicit plan follows from its degrees.

    Raises:
        ConfigError: The strategy is for one rank, and `mesh` has more.
    """
    found = strategy_of(mesh) if strategy == "explicit" else strategy
    if found == ONE_RANK.name and mesh.world_size > 1:
        raise ConfigError(f"train.strategy none is for one rank, the plan has {mesh.world_size}; use ddp or fsdp")
    return found


def outer_interval(strategy: str, outer_steps: int | None) -> int:
    """Steps from one exchange of the replicas to the next; 1: they average every step."""
    traits = traits_of(strategy)
    return (outer_steps or 1) if traits and traits.averages_rarely else 1


def label_of(strategy: str, mesh: Mesh) -> str:
    """`none`, `ddp-2`, `fsdp-16`, `hsdp-2x8`, `tp-4x8`."""
    traits = traits_of(strategy)
    if traits is ONE_RANK:
        return strategy
    if traits is None or not traits.label or (traits.label_if and mesh.size_of(traits.label_if) == 1):
        return f"{strategy}-{mesh.world_size}"
    degrees = (mesh.size_of(group) for group in traits.label)
    return f"{strategy}-{'x'.join(str(degree) for degree in degrees if degree > 1 or not traits.label_drops_ones)}"
