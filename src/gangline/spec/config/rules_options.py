"""Options of `train` that each strategy supports: degrees, buckets, compression, recovery."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from math import prod

from gangline.spec.compression import Compression
from gangline.spec.config.line import MeshTable, TrainTable
from gangline.spec.config.problems import ConfigProblem, at_least, show
from gangline.spec.mesh import Axis, Mesh
from gangline.spec.strategies import MODEL_AXES, StrategyTraits, names, traits_of

_AXES = tuple(each.name for each in fields(Mesh))


def option_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    """Problems of `train.mesh`, `train.compression` and `train.recovery`, and of their combinations."""
    yield from _mesh_rules(table.mesh, table)
    yield from _compression_rules(table)
    yield from _recovery_rules(table)


def _mesh_rules(mesh: MeshTable, table: TrainTable) -> Iterator[ConfigProblem]:
    degrees = {axis: getattr(mesh, axis) for axis in _AXES}
    for axis, degree in degrees.items():
        yield from at_least(f"train.mesh.{axis}", degree, 1, "leave an unused axis out")
        if degree != 1 and table.strategy != "explicit":
            works = 'strategy = "explicit" takes degrees'
            yield ConfigProblem(
                f"train.mesh.{axis}", f"no degree with strategy = {show(table.strategy)}", show(degree), works
            )
    if table.strategy == "explicit" and min(degrees.values()) >= 1:
        yield from _degree_rules(degrees, table.ranks)
    yield from _idle_rules(mesh, table)
    yield from at_least("train.mesh.micro_batch", mesh.micro_batch, 1, '"auto" chooses')
    yield from at_least("train.mesh.bucket_bytes", mesh.bucket_bytes, 1, '"auto" leaves it to torch')


def _idle_rules(mesh: MeshTable, table: TrainTable) -> Iterator[ConfigProblem]:
    """Options that would say nothing about the strategy of the line."""
    if mesh.pp_schedule != "auto" and not _uses(table, "pp"):
        works = 'leave it out; "pp", "3d" and an explicit pp have a schedule'
        yield ConfigProblem("train.mesh.pp_schedule", "none without stages", show(mesh.pp_schedule), works)
    if mesh.context != "ring" and not _uses(table, "cp"):
        works = 'leave it out; "cp" and an explicit cp cut sequences'
        yield ConfigProblem("train.mesh.context", "none without cut sequences", show(mesh.context), works)
    if mesh.bucket_bytes != "auto" and not _has_buckets(table):
        *most, last = (f'"{name}"' for name in names(lambda each: each.has_buckets))
        works = f"leave it out; {', '.join(most)} and {last} have buckets"
        yield ConfigProblem(
            "train.mesh.bucket_bytes", "none where blocks are averaged one by one", show(mesh.bucket_bytes), works
        )


def _has_buckets(table: TrainTable) -> bool:
    mesh = table.mesh
    if table.strategy == "explicit":
        return mesh.dp_replicate > 1 and max(mesh.pp, mesh.dp_shard, mesh.cp, mesh.tp) == 1
    return table.strategy == "auto" or _is(table, lambda traits: traits.has_buckets)


def _degree_rules(degrees: dict[str, int], ranks: object) -> Iterator[ConfigProblem]:
    world = prod(degree for axis, degree in degrees.items() if axis != "ep")
    works = f'{world} or "auto" works' if world > 1 else f"train.mesh.dp_shard = {ranks} shards over them all"
    if isinstance(ranks, int) and ranks != world:
        yield ConfigProblem("train.ranks", f"the product of the degrees, {world}", show(ranks), works)
    if isinstance(ranks, tuple) and not ranks[0] <= world <= ranks[1]:
        wanted = f"a range around the product of the degrees, {world}"
        yield ConfigProblem("train.ranks", wanted, show(list(ranks)), f'{world} or "auto" works')
    if (degrees["dp_shard"] * degrees["cp"]) % degrees["ep"]:
        yield ConfigProblem("train.mesh.ep", "a divisor of dp_shard x cp", show(degrees["ep"]))


def _compression_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    compression = table.compression
    if compression.kind not in ("none", "bf16") and not _has_replicas(table):
        wanted = f"an axis dp_replicate for {compression.kind}"
        works = 'bf16 works wherever ranks average; "ddp" and "hsdp" have replicas'
        yield ConfigProblem("train.compression.kind", wanted, f"strategy = {show(table.strategy)}", works)
    elif compression.kind not in ("none", "bf16") and any(_uses(table, axis) for axis in MODEL_AXES):
        works = "bf16 works wherever ranks average; without tp, cp, pp and ep every kind does"
        yield ConfigProblem(
            "train.compression.kind", "none or bf16 where the model is cut", show(compression.kind), works
        )
    elif compression.kind not in ("none", "bf16") and table.memory.gradient_sync == "each":
        works = '"last" works: what is compressed is the gradient of a whole step'
        yield ConfigProblem("train.memory.gradient_sync", "last with compression", show("each"), works)
    yield from at_least("train.compression.rank", compression.rank, 1)
    if not 0 < compression.ratio <= 1:
        yield ConfigProblem("train.compression.ratio", "a share in (0, 1]", show(compression.ratio))
    yield from _outer_rules(table, compression)


_OUTER = {
    "outer_steps": "16 lets replicas meet every 16 steps",
    "outer_lr": "0.7 is usual, 1.0 takes the mean of the replicas",
}


def _outer_rules(table: TrainTable, compression: Compression) -> Iterator[ConfigProblem]:
    strategy, traits = table.strategy, traits_of(table.strategy)
    needed = traits.needs if traits else ()
    for name in needed:
        if getattr(compression, name) is None:
            yield ConfigProblem(f"train.compression.{name}", f"a value for {show(strategy)}", "nothing", _OUTER[name])
    for name in ("outer_steps", "outer_lr"):
        value = getattr(compression, name)
        if value is not None and name not in needed:
            works = 'leave it out; strategy = "diloco" has outer steps and a rate for them'
            yield ConfigProblem(
                f"train.compression.{name}", f"none with strategy = {show(strategy)}", show(value), works
            )
    if compression.kind != "none" and _is(table, lambda it: it.averages_rarely and not it.carries_compression):
        works = 'strategy = "diloco" with outer_lr = 1.0 and outer_momentum = 0.0 is the same, compressed'
        yield ConfigProblem(
            "train.compression.kind", f"none with strategy = {show(strategy)}", show(compression.kind), works
        )
    yield from at_least("train.compression.outer_steps", compression.outer_steps, 1)
    if compression.outer_lr is not None and compression.outer_lr <= 0:
        yield ConfigProblem("train.compression.outer_lr", "above 0", show(compression.outer_lr))
    if not 0 <= compression.outer_momentum < 1:
        yield ConfigProblem(
            "train.compression.outer_momentum", "in [0, 1)", show(compression.outer_momentum), "0.9 is usual"
        )


def _recovery_rules(table: TrainTable) -> Iterator[ConfigProblem]:
    yield from at_least("train.recovery.max_events", table.recovery.max_events, 0)
    if table.recovery.mode == "live" and not _has_replicas(table):
        found = f"strategy = {show(table.strategy)}"
        yield ConfigProblem(
            "train.recovery.mode", 'an axis dp_replicate for "live"', found, '"restart" works everywhere'
        )
    if table.recovery.stragglers == "rebalance" and (reason := _never_dealt(table)):
        works = '"name" works everywhere, "evict" with train.ranks = [least, most]'
        yield ConfigProblem("train.recovery.stragglers", reason, '"rebalance"', works)
    if table.recovery.stragglers == "evict" and not isinstance(table.ranks, tuple):
        wanted = "train.ranks = [least, most], so that plans for fewer nodes are ready"
        yield ConfigProblem("train.recovery.stragglers", wanted, '"evict"', '"name" works everywhere')


def _never_dealt(table: TrainTable) -> str:
    """What replicas lack to take unequal shares of a batch; empty: nothing."""
    if not _has_replicas(table):
        return "an axis dp_replicate, whose replicas share the work unevenly"
    if _uses(table, "pp"):
        return "no pipeline, for its stages take equal numbers of micro-batches"
    return "replicas that average every step" if _is(table, lambda traits: traits.averages_rarely) else ""


def _has_replicas(table: TrainTable) -> bool:
    if table.strategy == "explicit":
        return table.mesh.dp_replicate > 1
    return traits_of(table.strategy) is None or _is(table, lambda traits: traits.has_replicas)


def _uses(table: TrainTable, axis: Axis) -> bool:
    """The degree of `axis` is above 1, or may be under a strategy that chooses it."""
    if table.strategy == "explicit":
        return bool(getattr(table.mesh, axis) > 1)
    return _is(table, lambda traits: axis in traits.axes)


def _is(table: TrainTable, has: Callable[[StrategyTraits], bool]) -> bool:
    """The strategy has this trait; `auto`, `explicit` and unknown names have none."""
    traits = traits_of(table.strategy)
    return traits is not None and has(traits)
