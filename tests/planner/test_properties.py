"""The choice against brute force: every world size and every shape tried, nothing clever."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.cases import SITE, USABLE, cpu, gpus, line

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.planner.proof import make_proof_plan
from gangline.spec.config.line import MemoryTable, MeshTable
from gangline.spec.data_source import DataSource
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import effective_strategy, names

counts = st.integers(1, 8)
batches = st.integers(1, 512)
sizes = st.integers(1, int(20 * USABLE / 16))


def oracle(count: int, nodes: int, batch: int, parameters: int) -> str | None:
    """Name of the plan: the most ranks that divide the batch on whole nodes, then the first shape that fits."""
    sizes = [world for world in range(1, count * nodes + 1) if batch % world == 0 and even(world, count, nodes)]
    world = max(sizes)
    used = next(each for each in range(1, nodes + 1) if world <= each * count)
    shapes = [("ddp", 1), ("hsdp", world // used), ("fsdp", world)] if world > 1 else []
    for strategy, shards in shapes:
        if strategy == "hsdp" and not 1 < used < world:
            continue
        if held(parameters, shards, batch // world) <= USABLE:
            return f"hsdp-{used}x{shards}" if strategy == "hsdp" else f"{strategy}-{world}"
    return "none" if 16 * parameters <= USABLE else None


def held(parameters: int, shards: int, share: int) -> float:
    """The state; shards keep whole gradients as long as there are micro-batches to come."""
    is_last = any(share == size for size in range(1, 17))
    gradients = 4 * parameters / shards if shards == 1 or is_last else 4 * parameters
    return 12 * parameters / shards + gradients


def even(world: int, count: int, nodes: int) -> bool:
    used = next(each for each in range(1, nodes + 1) if world <= each * count)
    return used == 1 or world % used == 0


@given(count=counts, nodes=st.integers(1, 4), batch=batches, parameters=sizes)
def test_choice_is_what_trying_everything_finds(count, nodes, batch, parameters):
    profile, asked = ModelProfile(parameters=parameters), line(batch=batch, memory=MemoryTable(offload="none"))
    try:
        choice = choose_plan(asked, SITE, gpus(count, nodes), profile)
    except ConfigError:
        assert oracle(count, nodes, batch, parameters) is None
        return
    assert choice.name == oracle(count, nodes, batch, parameters)
    assert batch % (choice.mesh.data_parallel * choice.micro_batch) == 0
    assert choice.num_nodes * choice.procs_per_node == choice.mesh.world_size


@given(count=counts, batch=batches, parameters=sizes)
def test_more_memory_never_needs_more_shards(count, batch, parameters):
    profile = ModelProfile(parameters=parameters)
    shards = []
    for memory in (80e9, 160e9):
        try:
            shards.append(choose_plan(line(batch=batch), SITE, gpus(count, memory=memory), profile).mesh.dp_shard)
        except ConfigError:
            shards.append(10**9)
    assert shards[1] <= shards[0]


@given(count=counts, nodes=st.integers(1, 4), batch=batches, parameters=sizes)
def test_same_question_gives_the_same_answer(count, nodes, batch, parameters):
    def answer():
        try:
            return choose_plan(line(batch=batch), SITE, gpus(count, nodes), ModelProfile(parameters=parameters))
        except ConfigError as error:
            return str(error)

    assert answer() == answer()


ranks = st.one_of(
    st.just("auto"), st.integers(1, 40), st.tuples(st.integers(1, 8), st.integers(0, 40)).map(lambda p: (p[0], sum(p)))
)
inventories = st.one_of(
    st.builds(gpus, counts, st.integers(1, 3)), st.builds(cpu, st.integers(1, 16), st.floats(1e8, 1e12))
)
tables = st.builds(
    MeshTable,
    dp_replicate=st.integers(1, 4),
    dp_shard=st.integers(1, 4),
    tp=st.sampled_from([1, 1, 1, 2]),
    pp=st.sampled_from([1, 1, 1, 2]),
    pp_schedule=st.sampled_from(["auto", "1f1b", "dualpipev"]),
    micro_batch=st.just("auto") | st.integers(1, 20),
)


def test_a_model_without_parameters_gets_a_plan_for_gpus():
    assert choose_plan(line(batch=8), SITE, gpus(4), ModelProfile(parameters=0)).mesh.world_size == 4


@settings(max_examples=300)
@given(
    strategy=st.sampled_from(["auto", "explicit", *names(aliases=True)]),
    ranks=ranks,
    batch=batches,
    mesh=tables,
    inventory=inventories,
    profile=st.none() | st.builds(ModelProfile, parameters=st.integers(0, 10**12)),
    second=st.sampled_from(["auto", "none", "ddp", "fsdp", "hsdp", "zero2"]),
)
def test_any_question_gets_a_plan_that_adds_up_or_a_config_error(
    strategy, ranks, batch, mesh, inventory, profile, second
):
    asked = line(strategy=strategy, ranks=ranks, batch=batch, mesh=mesh)
    try:
        choice = choose_plan(asked, SITE, inventory, profile)
    except ConfigError:
        return
    plan = make_plan(asked, choice, run="r", run_prefix="p", data=DataSource())
    assert plan.accumulation * plan.micro_batch * plan.mesh.data_parallel == batch
    assert plan.world_size == choice.num_nodes * choice.procs_per_node
    assert effective_strategy(plan.strategy, plan.mesh) == plan.strategy
    try:
        other = make_proof_plan(plan, second, inventory=inventory)
    except ConfigError:
        return
    assert other.accumulation * other.micro_batch * other.mesh.data_parallel == batch
    assert effective_strategy(other.strategy, other.mesh) == other.strategy
