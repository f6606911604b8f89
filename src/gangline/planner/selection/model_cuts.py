"""Shapes that cut the model itself: tensor, context and pipeline parallelism, with shards over the other ranks.

They are considered where data-parallel shapes do not fit or take longer.
"""

from collections.abc import Iterator
from math import gcd

from gangline.planner.axes.bubble import runnable_schedules
from gangline.planner.axes.pipeline_conflicts import pipeline_conflicts_of_line
from gangline.planner.axes.tensor import NO_RULES
from gangline.planner.selection.feasibility import compression_obstacle, copies_obstacle, obstacle, overlap_obstacle
from gangline.planner.shapes.device_pool import Pool
from gangline.planner.shapes.shape import Shape
from gangline.planner.shapes.world_size import choose_world, is_whole, micro_unit, num_nodes
from gangline.planner.transformer.layout import Divisions, SearchSpace, divisors, layouts, unsupported_rule
from gangline.spec.config.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import DDP, FSDP, ZERO2, strategy_of


def cut_shapes(line: Line, pool: Pool, profile: ModelProfile) -> list[Shape]:
    """Products of `pp`, `cp` and `tp`, with shards over the other ranks, fewest axes and smallest degrees first.

    Degrees divide what has to stay whole: tp the ranks of a server and the cuts of the model, cp the ranks of a server
    and half the places of a sequence, all of them the world; pp is at most the blocks; the batch is shared evenly, in
    micro-batches that some schedule takes.
    """
    worlds = [world for world in _worlds(line, pool) if world > 1 and is_whole(pool, world)]
    found = {shape: None for world in worlds for shape in _products(line, pool, profile, world)}
    return sorted(found, key=_cost)


def _cost(shape: Shape) -> tuple[int, int, int, int, int]:
    mesh = shape.mesh
    cuts = (mesh.tp > 1) + (mesh.pp > 1) + (mesh.cp > 1)
    return cuts, mesh.tp * mesh.pp * mesh.cp, mesh.pp, mesh.cp, -mesh.world_size


def _worlds(line: Line, pool: Pool) -> list[int]:
    """What the line says; else all there is, and what shares the batch: peers of one model see the same samples."""
    ranks = line.train.ranks
    if isinstance(ranks, int):
        return [ranks]
    whole = pool.num_nodes * pool.preferred
    if isinstance(ranks, tuple):
        whole = max(ranks[0], min(ranks[1], pool.size))
    return sorted({choose_world(line, pool), whole}, reverse=True)


def _products(line: Line, pool: Pool, profile: ModelProfile, world: int) -> Iterator[Shape]:
    node = world // num_nodes(pool, world)
    cuts = profile.tensor_cuts or 1
    space = SearchSpace(
        world_size=world,
        ranks_per_node=node,
        global_batch=line.train.global_batch,
        tp=divisors(gcd(node, cuts)),
        pp=[each for each in divisors(world) if each <= (profile.blocks or 1)],
        cp=[1] if "cp" in profile.obstacles or not profile.sequence else divisors(node),
        wrappings=(DDP, ZERO2, FSDP),
        admits=lambda layout: layout.mesh.dp_replicate == 1 and not unsupported_rule(layout),
    )
    model = Divisions(widths=(cuts,), blocks=profile.blocks or 1, sequence=profile.sequence or 1, experts=1)
    for mesh in dict.fromkeys(each.mesh for each in layouts(space, model).found):
        if mesh.tp * mesh.pp * mesh.cp > 1 and _is_shared(line, mesh, profile):
            yield Shape(strategy_of(mesh), mesh)


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


def unused_axes(line: Line, pool: Pool, profile: ModelProfile) -> list[tuple[Shape, str]]:
    """An axis that no shape has, as the shape that would be the first, and the one reason."""
    world = max(_worlds(line, pool))
    node = world // num_nodes(pool, world)
    peers = next((each for each in divisors(node) if each > 1), 1)
    stages = next((each for each in divisors(world) if each > 1), 1)
    found = []
    if peers > 1 and not profile.tensor_cuts:
        found.append((_with(Mesh(dp_shard=world // peers, tp=peers)), NO_RULES))
    if stages > 1 and (profile.blocks or 0) < 2:
        found.append(
            (
                _with(Mesh(pp=stages, dp_shard=world // stages)),
                f"{profile.blocks or 0} blocks cannot be cut into stages",
            )
        )
    return found


def _with(mesh: Mesh) -> Shape:
    return Shape(strategy_of(mesh), mesh)


def refusal_reason(line: Line, shape: Shape, profile: ModelProfile | None) -> str | None:
    """Why the runtime, the options of `line` or the model keep `shape` from being run; None: nothing does."""
    cut = shape.mesh.tp * shape.mesh.pp * shape.mesh.cp * shape.mesh.ep > 1
    kind = line.train.compression.kind
    if kind not in ("none", "bf16") and cut:
        return f"train.compression.kind = {kind} is for whole parameters, which are cut here"
    if shape.mesh.dp_replicate == 1 and line.train.recovery.stragglers == "rebalance":
        return "train.recovery.stragglers = rebalance gives replicas other shares, and there is one replica"
    return (
        compression_obstacle(line, shape.mesh)
        or overlap_obstacle(line, shape.mesh)
        or copies_obstacle(line, shape)
        or next(iter(pipeline_conflicts_of_line(line, shape.mesh)), None)
        or obstacle(shape.mesh, profile)
    )
