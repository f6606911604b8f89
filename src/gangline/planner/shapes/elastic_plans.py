"""Other world sizes of an elastic gang, each with the same strategy.

Only data parallelism grows and shrinks: stages, tensor-parallel and context-parallel degrees do not change.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gangline.planner.shapes.shape import Shape, display_name
from gangline.planner.shapes.world_size import micro_batches
from gangline.spec.config.line import Line
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Size
from gangline.spec.strategies import ONE_RANK, Strategy, strategy_of, traits_of


def elastic_sizes(
    line: Line, *, strategy: Strategy, mesh: Mesh, micro_batch: int, holds: Callable[[Shape, int], bool]
) -> tuple[tuple[Size, ...], tuple[int, ...]]:
    """One size for each number of ranks in `train.ranks = [min, max]` that can go on with the training of `mesh`.

    Args:
        line: What is asked; one number of ranks, or `"auto"`, is not elastic.
        strategy: As chosen.
        mesh: As chosen.
        micro_batch: As chosen; another size takes no more at once, for more need not fit.
        holds: Whether a rank of a shape holds passes of so many samples.

    Returns:
        Sizes, and the numbers of ranks that are too few to hold the model.
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
             if holds(Shape(_strategy(size.strategy, each), each), size.micro_batch)), None
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
        name = display_name(line, Shape(named, mesh))
        yield Size(name=name, strategy=named, mesh=mesh, micro_batch=min(own, share))


def _strategy(strategy: Strategy, mesh: Mesh) -> Strategy:
    """A name that fits the degrees: a single rank shares nothing, and one replica of shards is not a hybrid."""
    if mesh.world_size == 1:
        return ONE_RANK.name
    traits = traits_of(strategy)
    if traits is None or traits is ONE_RANK or (traits.layout == "replicas_of_shards" and mesh.dp_replicate == 1):
        return strategy_of(mesh)
    return strategy
