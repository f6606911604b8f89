"""Left to itself the planner cuts what does not fit, asks for time in exchange for room, and names what would help."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.cases import SITE, SMALL, USABLE, gpus, line, model_of
from tests.planner.transformers import EIGHT, H100, transformer

from gangline.errors import ConfigError
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.spec.config.line import MemoryTable, MeshTable, ProjectTable
from gangline.spec.data_source import DataSource
from gangline.spec.plan import Compression
from gangline.spec.profile import ModelProfile

DEEP = {"blocks": 16, "tensor_cuts": 8}


def model(state: float, activations: float | None = None, **known) -> ModelProfile:
    """State, and activations of one sample, in devices."""
    size = None if activations is None else int(activations * USABLE)
    return replace(model_of(state), activation_bytes_per_sample=size, **known)


def verdicts(choice):
    return {each.name: (each.verdict, each.reason) for each in choice.candidates}


def test_a_sample_that_fits_no_device_is_shared_by_peers_of_a_layer():
    choice = choose_plan(line(batch=64), SITE, gpus(8), model(0.5, 10, **DEEP))
    assert choice.name == "tp-4x2"
    assert choice.memory.activation_checkpointing == "full"
    assert choice.reason == (
        "sharing data alone does not fit: 2 peers share each layer, 4 shards the rest; recomputes all blocks"
    )
    assert verdicts(choice)["fsdp-8"][0] == "no_fit"
    assert verdicts(choice)["tp-2x4"][1] == "4 peers exchange in every block where 2 do"


def test_a_batch_too_small_for_all_ranks_leaves_them_stages():
    choice = choose_plan(line(batch=2), SITE, gpus(8), model(5, blocks=16, tensor_cuts=0))
    assert choice.name == "pp-4x2"
    assert verdicts(choice)["fsdp-2"][1] == "spends more time on saving memory: shards wait on the host"
    verdict, reason = next(each for name, each in verdicts(choice).items() if name.startswith("tp"))
    assert (verdict, "wanted rules in hints.tensor" in reason) == ("unsupported", True)


@pytest.mark.parametrize(("nodes", "count"), [(1, 24), (4, 53), (32, 91)])
def test_every_product_of_degrees_that_cut_the_model_is_evaluated(nodes, count):
    profile = transformer(**EIGHT, sequence=4096)
    assert len(choose_plan(line(batch=512), H100, gpus(8, nodes), profile).candidates) == count


def test_a_program_that_is_not_distributed_is_one_process_whatever_is_there():
    alone = ProjectTable(name="p", command=("python", "train.py"), distributed=False)
    choice = choose_plan(replace(line(batch=64), project=alone), SITE, gpus(8), model(0.1))
    assert choice.mesh.world_size == 1


def test_products_are_the_last_way_to_share():
    choice = choose_plan(line(batch=1), SITE, gpus(8, 2), model(12, blocks=4, tensor_cuts=8))
    assert (choice.mesh.tp > 1, choice.mesh.pp > 1) == (True, True)
    assert choice.mesh.world_size == 16


def test_a_model_that_cannot_be_sharded_shares_its_moments():
    choice = choose_plan(line(batch=64), SITE, gpus(8), model(1.3, obstacles={"dp_shard": "scale is a single number"}))
    assert choice.name == "zero1-8"
    assert verdicts(choice)["fsdp-8"] == ("unsupported", "scale is a single number")


def test_what_fits_no_other_way_waits_on_the_host_as_far_as_the_host_holds_it():
    asked, profile = line(batch=64), model(9)
    choice = choose_plan(asked, SITE, gpus(8), profile)
    assert (choice.name, choice.memory.offload) == ("fsdp-8", "cpu")
    assert choice.reason.startswith("needs 9.0 times one device")
    assert "shards wait on the host" in choice.reason
    assert make_plan(asked, choice, run="r", run_prefix="p", data=DataSource()).memory.offload == "cpu"
    with pytest.raises(ConfigError, match="2 nodes like these would fit it"):
        choose_plan(asked, SITE, replace(gpus(8), memory_bytes=10**11 * 5), profile)


def test_time_is_given_up_only_by_those_that_have_no_other_way():
    """Half the state and three quarters of a sample: copies would compute all blocks again, shards nothing."""
    choice = choose_plan(line(batch=64), SITE, gpus(8), model(0.5, 0.75))
    assert (choice.name, choice.memory.activation_checkpointing) == ("fsdp-8", "none")
    assert verdicts(choice)["ddp-8"][1].startswith("spends more time on saving memory: recompute")


@pytest.mark.parametrize(
    ("changes", "profile", "change"),
    [
        (
            {"memory": MemoryTable(activation_checkpointing="none", offload="none"), "strategy": "ddp"},
            model(0.1, 1.05),
            'train.memory.activation_checkpointing = "selective" would fit, as ddp-8',
        ),
        (
            {"memory": MemoryTable(activation_checkpointing="none", offload="none"), "strategy": "ddp"},
            model(0.1, 2),
            'train.memory.activation_checkpointing = "full" would fit, as ddp-8',
        ),
        (
            {"mesh": MeshTable(micro_batch=8), "strategy": "ddp"}, model(0.1, 2),
            "train.mesh.micro_batch = 2 would fit, as ddp-8",
        ),
        ({"strategy": "ddp"}, model(2.1), 'train.strategy = "auto" would fit, as fsdp-8'),
        (
            {"memory": MemoryTable(offload="none")}, model(12),
            'train.memory.offload = "auto" would fit, as fsdp-8',
        ),
        ({"memory": MemoryTable(offload="none"), "strategy": "zero1"}, model(200), "larger devices are needed"),
    ],
)  # fmt: skip
def test_the_smallest_change_that_would_do_is_named_and_does(changes, profile, change):
    with pytest.raises(ConfigError, match=f"; {re.escape(change)}$"):
        choose_plan(line(batch=64, **changes), SITE, gpus(8), profile)


def test_no_shape_is_weighed_that_an_option_of_the_line_forbids():
    compressed = line(batch=2, compression=Compression(kind="topk"))
    with pytest.raises(ConfigError, match="ddp-2 needs"):
        choose_plan(compressed, SITE, gpus(8), model(5, **DEEP))
    command = replace(line(batch=2), project=ProjectTable(name="demo", command=("python", "train.py")))
    choice = choose_plan(command, SITE, gpus(8), model(3, **DEEP))
    assert choice.mesh.pp == 1
    assert "wanted 1 for a command" in verdicts(choice)["pp-4x2"][1]


def test_an_elastic_plan_goes_to_no_size_that_cannot_hold_it():
    asked = line(ranks=(2, 8), batch=64, memory=MemoryTable(offload="none"))
    choice = choose_plan(asked, SITE, gpus(8), model(2.1))
    assert {size.mesh.world_size for size in choice.sizes} == {4, 5, 6, 7}
    assert "never on 2, 3 ranks, which cannot hold it" in choice.reason


profiles = st.builds(
    model,
    st.floats(0.1, 30),
    st.none() | st.floats(0.01, 40),
    blocks=st.sampled_from([None, 2, 16]),
    tensor_cuts=st.sampled_from([None, 0, 1, 4, 8]),
    obstacles=st.sampled_from([{}, {"dp_shard": "no shards"}, {"pp": "no stages"}]),
)


@settings(max_examples=60)
@given(profile=profiles, count=st.integers(1, 8), nodes=st.integers(1, 2), batch=st.sampled_from([1, 2, 6, 64, 512]))
def test_every_loser_has_one_reason_and_what_it_names_helps(profile, count, nodes, batch):
    asked, inventory = line(batch=batch), gpus(count, nodes)
    try:
        choice = choose_plan(asked, SITE, inventory, profile)
    except ConfigError:
        return
    assert len({each.name for each in choice.candidates}) == len(choice.candidates)
    assert [each.verdict for each in choice.candidates].count("chosen") == 1
    for each in choice.candidates:
        assert each.reason
        if each.verdict == "unsupported" and each.reason in profile.obstacles.values():
            axis = next(name for name, reason in profile.obstacles.items() if reason == each.reason)
            assert getattr(each.mesh, axis) > 1
    assert all(getattr(choice.mesh, axis) == 1 for axis in profile.obstacles)
    assert batch % (choice.mesh.data_parallel * choice.micro_batch) == 0
    used = min(nodes, -(-choice.mesh.world_size // count))
    assert choice.mesh.world_size // used % choice.mesh.tp == 0, "peers of a layer share a node"
    assert choice.mesh.tp == 1 or (profile.tensor_cuts or 0) % choice.mesh.tp == 0


@settings(max_examples=40)
@given(profile=profiles, batch=st.sampled_from([2, 64]))
def test_room_for_what_a_loser_needs_makes_it_fit(profile, batch):
    try:
        choice = choose_plan(line(batch=batch, memory=MemoryTable(offload="none")), SITE, gpus(8), profile)
    except ConfigError:
        return
    for each in choice.candidates:
        if each.verdict == "no_fit":
            room = (each.forecast.memory_bytes + 10) * 1.1 + 4e9
            shape = {"strategy": each.strategy, "ranks": each.mesh.world_size}
            if each.strategy in ("ddp", "zero1", "fsdp"):
                asked = line(batch=batch, memory=MemoryTable(offload="none"), **shape)
                assert choose_plan(asked, SITE, gpus(8, memory=room), profile).name == each.name


def test_small_models_are_still_copied():
    assert choose_plan(line(batch=64), SITE, gpus(8), SMALL).name == "ddp-8"
