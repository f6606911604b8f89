"""The choice against brute force: every world size and every shape tried, nothing clever."""

from hypothesis import given
from hypothesis import strategies as st
from tests.planner.cases import SITE, USABLE, gpus, line

from gangline.errors import ConfigError
from gangline.planner.choose import choose
from gangline.spec.profile import ModelProfile

counts = st.integers(1, 8)
batches = st.integers(1, 512)
sizes = st.integers(1, int(20 * USABLE / 16))


def oracle(count: int, nodes: int, batch: int, parameters: int) -> str | None:
    """Name of the plan: the most ranks that divide the batch on whole nodes, then the first shape that fits."""
    sizes = [world for world in range(1, count * nodes + 1) if batch % world == 0 and even(world, count, nodes)]
    world = max(sizes)
    used = next(each for each in range(1, nodes + 1) if world <= each * count)
    state = 16 * parameters
    shapes = [("ddp", 1), ("hsdp", world // used), ("fsdp", world)] if world > 1 else []
    for strategy, shards in shapes:
        if strategy == "hsdp" and not 1 < used < world:
            continue
        if state / shards <= USABLE:
            return f"hsdp-{used}x{shards}" if strategy == "hsdp" else f"{strategy}-{world}"
    return "none" if state <= USABLE else None


def even(world: int, count: int, nodes: int) -> bool:
    used = next(each for each in range(1, nodes + 1) if world <= each * count)
    return used == 1 or world % used == 0


@given(count=counts, nodes=st.integers(1, 4), batch=batches, parameters=sizes)
def test_choice_is_what_trying_everything_finds(count, nodes, batch, parameters):
    profile = ModelProfile(parameters=parameters)
    try:
        choice = choose(line(batch=batch), SITE, gpus(count, nodes), profile)
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
            shards.append(choose(line(batch=batch), SITE, gpus(count, memory=memory), profile).mesh.dp_shard)
        except ConfigError:
            shards.append(10**9)
    assert shards[1] <= shards[0]


@given(count=counts, nodes=st.integers(1, 4), batch=batches, parameters=sizes)
def test_same_question_gives_the_same_answer(count, nodes, batch, parameters):
    def answer():
        try:
            return choose(line(batch=batch), SITE, gpus(count, nodes), ModelProfile(parameters=parameters))
        except ConfigError as error:
            return str(error)

    assert answer() == answer()
