"""Layouts of a gang: every product of mesh degrees and ways to share data, and the rules that strike some out. Pure.

One enumerator serves both models of a plan; of a traced one it makes the products that cut the model itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from gangline.planner.layouts.bubble import runnable_schedules
from gangline.planner.layouts.degrees import NO_RULES
from gangline.planner.layouts.layout import WRAPPING_WORDS, Layout, WrappedLayout
from gangline.planner.pool import Pool, choose_world, divisors, is_whole, micro_unit, most_ranks, num_nodes
from gangline.spec.config.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import PipelineSchedule
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import DDP, FSDP, ZERO1, ZERO2, Wrapping, strategy_of

Sync = Literal["each", "last"]
"""When gradients are reduced: after each micro-batch, or after the last one of a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpace:
    """Values of every axis that candidates are made of; each keeps its order, the simplest first."""

    world_size: int
    ranks_per_node: int
    """Ranks of one server, whose links inside are fast."""
    global_batch: int
    tp: Sequence[int] = (1,)
    pp: Sequence[int] = (1,)
    cp: Sequence[int] = (1,)
    ep: Sequence[int] = (1,)
    wrappings: Sequence[Wrapping] = (DDP, ZERO1, ZERO2, FSDP)
    syncs: Sequence[Sync] = ("last", "each")
    micro_batches: Sequence[int] = (1, 2, 4, 8)
    recompute: Sequence[str] = ("none", "selective", "full")
    loss_chunks: Sequence[int] = (1, 8)
    schedules: Sequence[PipelineSchedule] = ("1f1b",)
    on_host: bool = False
    """Shards wait in the memory of their server; layouts without shards are left out."""
    admits: Callable[[WrappedLayout], bool] = lambda _: True
    """Whether a layout is asked for."""


def layouts(space: SearchSpace, profile: ModelProfile) -> tuple[tuple[WrappedLayout, ...], Counter[str]]:
    """All of `space` that the model allows; and products of degrees that a rule excludes, counted by the rule."""
    found: dict[WrappedLayout, None] = {}
    ruled_out: Counter[str] = Counter()
    for mesh in _cuts(space):
        if rule := broken_rule(space, profile, mesh):
            ruled_out[rule] += 1
            continue
        found |= dict.fromkeys(filter(space.admits, _data_layouts(space, mesh)))
    return tuple(found), ruled_out


def _cuts(space: SearchSpace) -> Iterator[Mesh]:
    """Degrees that cut the model, with all other ranks in one data-parallel axis."""
    for tp in space.tp:
        for pp in space.pp:
            for cp in space.cp:
                data, left = divmod(space.world_size, tp * pp * cp)
                if not left and data:
                    yield from (
                        Mesh(tp=tp, pp=pp, cp=cp, dp_shard=data, ep=ep) for ep in space.ep if not data * cp % ep
                    )


def broken_rule(space: SearchSpace, profile: ModelProfile, mesh: Mesh) -> str:
    """The first rule by which `mesh` cannot carry the model; empty: it can."""
    cuts, experts, sequence = profile.tensor_cuts or 1, profile.experts or 1, profile.sequence or 1
    rules = (
        (cuts % mesh.tp > 0, f"tp = {mesh.tp} does not divide heads, feed_width and vocabulary"),
        (space.ranks_per_node % mesh.tp > 0, f"tp = {mesh.tp} leaves the {space.ranks_per_node} ranks of a server"),
        (mesh.pp > (profile.blocks or 1), f"pp = {mesh.pp} stages want as many blocks"),
        (mesh.cp > 1 and sequence % (2 * mesh.cp) > 0, f"cp = {mesh.cp} wants a sequence of 2 cp equal pieces"),
        (experts % mesh.ep > 0, f"ep = {mesh.ep} does not divide the experts"),
        (space.global_batch % mesh.data_parallel > 0, f"{mesh.data_parallel} ranks do not divide the batch"),
    )
    return next((words for is_broken, words in rules if is_broken), "")


def _data_layouts(space: SearchSpace, mesh: Mesh) -> Iterator[WrappedLayout]:
    """Every way to hold what `mesh` leaves of the model on its data-parallel ranks."""
    ranks = mesh.dp_shard
    copies = Mesh(tp=mesh.tp, pp=mesh.pp, cp=mesh.cp, dp_replicate=ranks)
    if mesh.cp == mesh.ep == 1 and not space.on_host:
        if DDP in space.wrappings:
            yield WrappedLayout.of(mesh=copies, wrapping=DDP)
        if ZERO1 in space.wrappings and mesh.tp == 1 and ranks > 1:  # DDP, which it is built on, loses parameters of tp
            yield WrappedLayout.of(mesh=copies, wrapping=ZERO1)
    for shards in divisors(ranks):
        if shards * mesh.cp == 1 or (shards * mesh.cp) % mesh.ep:
            continue
        cut = Mesh(
            tp=mesh.tp, pp=mesh.pp, cp=mesh.cp, ep=mesh.ep, dp_replicate=ranks // shards, dp_shard=shards
        )  # fmt: skip
        yield from (WrappedLayout.of(mesh=cut, wrapping=wrapping) for wrapping in space.wrappings if wrapping.shards)


def unsupported_rule(layout: Layout, *, sync: Sync = "last", loss_chunks: int = 1) -> str:
    """Why the ranks here cannot run it, though torch could; empty: they can."""
    mesh, wrapping, words = layout.mesh, layout.wrapping, WRAPPING_WORDS
    cut = mesh.tp * mesh.pp * mesh.cp * mesh.ep > 1
    keeps = wrapping.shards and not wrapping.reshards
    rules = (
        (
            mesh.pp > 1 and wrapping.reshards,
            f"stages keep their weights gathered: {words[ZERO2]} runs with pp",
        ),
        (mesh.pp > 1 and sync == "each" and wrapping.shards, "stages reduce after the last micro-batch"),
        (mesh.pp > 1 and loss_chunks > 1, "the loss of a pipeline is not cut into pieces"),
        (mesh.pp > 1 and wrapping.shares_optimizer, "copies that share the optimizer run without pp"),
        (
            keeps and mesh.pp == 1 and cut,
            f"shards with tp, cp or ep are gathered for each pass: {words[FSDP]}",
        ),
        (keeps and mesh.pp == 1 and mesh.dp_replicate > 1, f"replicas of shards run as {strategy_of(mesh)}"),
    )
    return next((words for is_broken, words in rules if is_broken), "")


def cut_layouts(line: Line, pool: Pool, profile: ModelProfile) -> list[Layout]:
    """Products of `pp`, `cp` and `tp`, with shards over the other ranks, fewest axes and smallest degrees first.

    Degrees divide what has to stay whole: tp the ranks of a server and the cuts of the model, cp the ranks of a server
    and half the places of a sequence, all of them the world; pp is at most the blocks; the batch is shared evenly, in
    micro-batches that some schedule takes.
    """
    worlds = [world for world in _worlds(line, pool) if world > 1 and is_whole(pool, world)]
    found = {layout: None for world in worlds for layout in _products(line, pool, profile, world)}
    return sorted(found, key=_cost)


def _cost(layout: Layout) -> tuple[int, int, int, int, int]:
    mesh = layout.mesh
    cuts = (mesh.tp > 1) + (mesh.pp > 1) + (mesh.cp > 1)
    return cuts, mesh.tp * mesh.pp * mesh.cp, mesh.pp, mesh.cp, -mesh.world_size


def _worlds(line: Line, pool: Pool) -> list[int]:
    """What the line says; else all there is, and what shares the batch: peers of one model see the same samples."""
    ranks = line.train.ranks
    return (
        [ranks] if isinstance(ranks, int) else sorted({choose_world(line, pool), most_ranks(line, pool)}, reverse=True)
    )


def _products(line: Line, pool: Pool, profile: ModelProfile, world: int) -> Iterator[Layout]:
    node = world // num_nodes(pool, world)
    space = SearchSpace(
        world_size=world,
        ranks_per_node=node,
        global_batch=line.train.global_batch,
        tp=divisors(gcd(node, profile.tensor_cuts or 1)),
        pp=[divisor for divisor in divisors(world) if divisor <= (profile.blocks or 1)],
        cp=[1] if "cp" in profile.obstacles or not profile.sequence else divisors(node),
        wrappings=(DDP, ZERO2, FSDP),
        admits=lambda layout: layout.mesh.dp_replicate == 1 and not unsupported_rule(layout),
    )
    for mesh in dict.fromkeys(wrapped_layout.mesh for wrapped_layout in layouts(space, profile)[0]):
        if mesh.tp * mesh.pp * mesh.cp > 1 and _is_shared(line, mesh, profile):
            yield Layout.by_degrees(mesh)


def _is_shared(line: Line, mesh: Mesh, profile: ModelProfile) -> bool:
    """The batch divides into whole micro-batches, of a pipeline into as many as a schedule takes."""
    unit = micro_unit(line)
    if line.train.global_batch % (mesh.data_parallel * unit):
        return False
    if mesh.pp == 1:
        return True
    count = line.train.global_batch // (mesh.data_parallel * unit)
    works = runnable_schedules(mesh.pp, count, blocks=profile.blocks)
    return line.train.mesh.pp_schedule in ("auto", *works) and bool(works)


def unused_axes(line: Line, pool: Pool, profile: ModelProfile) -> list[tuple[Layout, str]]:
    """An axis that no layout has, as the shape that would be the first, and the one reason."""
    world = max(_worlds(line, pool))
    node = world // num_nodes(pool, world)
    peers = next((divisor for divisor in divisors(node) if divisor > 1), 1)
    stages = next((divisor for divisor in divisors(world) if divisor > 1), 1)
    found = []
    if peers > 1 and not profile.tensor_cuts:
        found.append((Layout.by_degrees(Mesh(dp_shard=world // peers, tp=peers)), NO_RULES))
    if stages > 1 and (profile.blocks or 0) < 2:
        reason = f"{profile.blocks or 0} blocks cannot be cut into stages"
        found.append((Layout.by_degrees(Mesh(pp=stages, dp_shard=world // stages)), reason))
    return found
