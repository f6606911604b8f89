"""Second plan of a proof: the same run under another parallel strategy, world size or micro-batch."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gangline.errors import ConfigError
from gangline.planner.cost.memory import rank_parts
from gangline.planner.layouts.degrees import tensor_mesh
from gangline.planner.layouts.layout import Layout, layout_of
from gangline.planner.layouts.rules import require_axes, require_runnable
from gangline.planner.pool import Pool, num_nodes, open_pool, ranks_per_node
from gangline.planner.settings import StepLoad
from gangline.spec.compression import Compression
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.plan import Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import COPIES, ONE_RANK, SHARDS, traits_of


def make_proof_plan(
    plan: Plan,
    strategy: str = "auto",
    *,
    inventory: Inventory | None = None,
    site: Site | None = None,
    profile: ModelProfile | None = None,
) -> Plan:
    """`plan` under another strategy or world size; where nothing else fits the same one in other passes.

    It exchanges its gradients whole after every step: what compression and drifting replicas cost shows in the loss.

    Args:
        plan: Of the train gang.
        strategy: A name; `auto` is the other one of ddp and fsdp on the same ranks, and two ranks after a single one.
        inventory: What is there; None: as many ranks as the plan has.
        site: Reserves and margins for the question whether a whole copy fits.
        profile: How the model can be cut; None: not known.

    Raises:
        ConfigError: The strategy is not run here, needs ranks that are not there, or cuts what the model keeps whole.
    """
    pool = open_pool(site or Site(), inventory) if inventory else None
    layout = None if strategy == "auto" else _asked(plan, strategy, pool, profile)
    if layout is not None and not _is_own(plan, layout):
        return _under(plan, layout, "as prove.plan asks")
    why = "" if layout is None else "prove.plan is the plan itself, which proves nothing; "
    for other in _alternatives(plan, pool, profile):
        if _is_there(other, plan.world_size, pool) and _divides(plan, other) and _fits(plan, other, pool):
            is_as_large = other.mesh.world_size == plan.world_size
            unlike = "another way to hold the state on the same ranks" if is_as_large else "another world size"
            return _under(plan, other, f"{why}{other.name} against {plan.name}: {unlike}")
    return _otherwise(plan, profile, why)


def _under(plan: Plan, layout: Layout, reason: str) -> Plan:
    """`plan` on another layout, in its own passes where they divide the new share, else in the largest that do."""
    share = plan.global_batch // layout.mesh.data_parallel
    most = min(plan.micro_batch, max(1, share // layout.mesh.pp))
    moves_none = plan.memory.offload == "cpu" and not layout.wrapping.shards
    return replace(
        plan,
        name=layout.name,
        strategy=layout.strategy,
        mesh=layout.mesh,
        micro_batch=next(size for size in range(most, 0, -1) if share % size == 0),
        shares=(),
        memory=replace(plan.memory, offload="none") if moves_none else plan.memory,
        compression=Compression(),
        reason=reason,
        candidates=(),
    )


def _otherwise(plan: Plan, profile: ModelProfile | None, why: str) -> Plan:
    """The same layout in smaller passes, else with blocks computed again: no other one fits."""
    same = _under(plan, Layout(plan.strategy, plan.mesh), "")
    fewer = next((each for each in range(plan.micro_batch - 1, 0, -1) if plan.micro_batch % each == 0), None)
    if fewer is not None:
        reason = f"{why}{plan.name} in passes of {fewer} where it took {plan.micro_batch}: no other shape fits here"
        return replace(same, micro_batch=fewer, reason=reason)
    if profile is not None and profile.blocks and plan.memory.activation_checkpointing != "full":
        memory = replace(same.memory, activation_checkpointing="full")
        return replace(same, memory=memory, reason=f"{why}{plan.name} with blocks computed again: no other shape fits")
    return replace(same, reason=f"{why}the same plan again: nothing else fits here")


def _is_own(plan: Plan, layout: Layout) -> bool:
    """`layout` is the plan's own, or another name for it: on a single rank copies are no copies."""
    own = Layout(plan.strategy, plan.mesh)
    alone = layout.mesh == own.mesh and plan.world_size == 1
    return layout == own or (alone and not layout.wrapping.shards and not own.wrapping.shards)


def _alternatives(plan: Plan, pool: Pool | None, profile: ModelProfile | None) -> Iterator[Layout]:
    """Copies and shards first; more ranks and peers of a layer where these do not fit or share the batch."""
    world = plan.world_size
    if world == 1:
        yield layout_of(COPIES.name, 2)
        return
    if plan.strategy != COPIES.name:
        yield layout_of(COPIES.name, world)
    if plan.strategy != SHARDS.name:
        yield layout_of(SHARDS.name, world)
    if plan.strategy != COPIES.name and world >= 4:
        yield layout_of(SHARDS.name, world // 2)
    yield layout_of(ONE_RANK.name, 1)
    yield layout_of(SHARDS.name, 2 * world)
    if profile is not None and profile.tensor_cuts and plan.mesh.tp == 1:
        with suppress(ConfigError):
            yield Layout("tp", tensor_mesh(world, num_nodes(pool, world) if pool else 1, profile))


def _asked(plan: Plan, strategy: str, pool: Pool | None, profile: ModelProfile | None) -> Layout:
    """`strategy` on the plan's ranks; a single rank becomes two where they are there: one has nothing to share."""
    require_runnable(strategy, key="prove.plan")
    traits = traits_of(strategy)
    if traits is None or traits is ONE_RANK:
        return layout_of(ONE_RANK.name, 1)
    world = max(2, plan.world_size)
    nodes = 2 if traits.layout == "replicas_of_shards" and world % 2 == 0 and world >= 4 else 1
    try:
        layout = layout_of(strategy, world, nodes, profile)
    except ConfigError as error:
        raise ConfigError(f"prove.plan: {error}") from error
    require_axes(layout.mesh, profile, key="prove.plan")
    if _is_there(layout, plan.world_size, pool) and _divides(plan, layout):
        return layout
    if plan.world_size == 1:
        return layout_of(strategy, 1)
    raise ConfigError(f"prove.plan: {layout.name} does not divide global_batch = {plan.global_batch}")


def _is_there(layout: Layout, world: int, pool: Pool | None) -> bool:
    return layout.mesh.world_size <= max(world, pool.num_nodes * pool.preferred if pool else world)


def _divides(plan: Plan, layout: Layout) -> bool:
    return plan.global_batch % layout.mesh.data_parallel == 0


def _fits(plan: Plan, layout: Layout, pool: Pool | None) -> bool:
    if pool is None or plan.forecast.parameters is None:
        return True
    usable = pool.usable_bytes(ranks_per_node(pool, layout.mesh.world_size))
    state = StepLoad(micro_batch=0, precision="fp32")
    return rank_parts(ModelProfile(parameters=plan.forecast.parameters), layout, state).fit(usable).holds
