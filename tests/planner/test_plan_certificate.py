"""What a plan asks of the network: bytes by hand, of a model by its shape and of a traced one; its certificate."""

from dataclasses import replace
from math import expm1

import pytest
from tests.planner.cases import gpus, line
from tests.planner.cost.test_update_traffic import WORK
from tests.planner.formula.reference import EIGHT
from tests.planner.transformers import EIGHT as TRACED
from tests.planner.transformers import H100, transformer

from gangline.fabric.topology.inventory import Fabric, Group
from gangline.planner.certificate import pipeline_traffic, plan_certificate, plan_rings
from gangline.planner.choice import choose_plan
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.known_gpus import with_network
from gangline.spec.config.fabric import FailureRates
from gangline.spec.config.line import MeshTable
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Compression

BATCH = 256
SHAPE, TINY = formula_profile(EIGHT), formula_profile(replace(EIGHT, layers=2))
FABRIC = Fabric(groups=tuple(Group(name=name, servers=(f"{name}0", f"{name}1")) for name in "ab"))


MATRICES = [(4096, 4096, 4), (1024, 4096, 4), (14_336, 4096, 6), (128_256, 4096, 2)]
ENTRIES = TINY.parameters
LINE = line(batch=BATCH, steps=10)


def chosen(profile, *, site=H100, tp=8, **degrees):
    mesh = MeshTable(tp=tp, micro_batch=1, **degrees)
    asked = line(batch=BATCH, steps=10, strategy="explicit", mesh=mesh)
    return choose_plan(asked, site, gpus(8, 4, name="h100"), profile)


def test_edges_of_a_pipeline_are_those_of_the_model():
    choice = chosen(SHAPE, pp=2, dp_replicate=2)
    found = pipeline_traffic(choice, SHAPE, line=LINE)
    weights = EIGHT.parameters / 16
    assert (choice.mesh.pp, choice.num_nodes, found.stages) == (2, 4, 2)
    assert found.data_edge_bytes == pytest.approx(2 * (2 - 1) / 2 * 4 * weights)
    assert found.stage_edge_bytes == pytest.approx(2 * 128 * 4096 * 4096 * 2 / 8)


def test_a_traced_model_says_by_its_blocks_what_stages_hand_on():
    traced = transformer(sequence=4096, **TRACED)
    choice = replace(chosen(SHAPE, pp=2, dp_replicate=2), precision="bf16")
    found = pipeline_traffic(choice, traced, line=LINE)
    assert found.stage_edge_bytes == pytest.approx(2 * 128 * 4096 * 4096 * 2 / 8)


EXPERTS = formula_profile(replace(EIGHT, layers=4, experts=8, active_experts=2))


def test_rows_that_go_to_experts_of_another_server_are_on_its_edges():
    """Two servers of a stage share experts: of 2 x 4096 rows of a sample half go to the other, in 2 blocks, there and
    back, forward and backward, an eighth of each over each rail."""
    choice = chosen(EXPERTS, pp=2, dp_shard=2, ep=2)
    found = pipeline_traffic(choice, EXPERTS, line=LINE)
    assert (choice.mesh.ep, choice.procs_per_node, found.expert_nodes) == (2, 8, 2)
    assert choice.memory.activation_checkpointing != "full"
    rows = (BATCH // 2) * 2 * 4096 * 2
    assert found.expert_edge_bytes == pytest.approx(4 * rows * 4096 * 2 / 8 / 2)
    inside = pipeline_traffic(chosen(EXPERTS, pp=2, dp_shard=4, tp=4, ep=2), EXPERTS, line=LINE)
    assert (inside.expert_nodes, inside.expert_edge_bytes) == (1, 0.0)


def test_a_certificate_counts_experts_that_are_in_another_group():
    """One stage on four servers, experts over all of them: of 12 ordered pairs 8 are in two groups."""
    choice = chosen(EXPERTS, dp_shard=4, ep=4)
    found = plan_certificate(FABRIC, choice, EXPERTS, line=LINE)
    (ring,) = (each for each in plan_rings(choice, EXPERTS, line=LINE) if each.ranks > 1)
    edge = 4 * (BATCH // 4) * 2 * 4096 * 4 * 4096 * 2 / 8 / 4
    assert (found.data_crossings, found.expert_crossings) == (2, 8)
    assert found.bytes_between == pytest.approx(2 * ring.wire_bytes + 8 * edge)
    assert "PP crossings 0 · EP crossings 8 · " in found.line


def test_rings_and_models_of_unknown_blocks_have_none():
    ring = chosen(SHAPE, dp_replicate=4)
    assert pipeline_traffic(ring, SHAPE, line=LINE) is None
    staged = chosen(SHAPE, pp=2, dp_replicate=2)
    assert pipeline_traffic(staged, replace(SHAPE, transformer=None), line=LINE) is None


def test_certificate_counts_what_crosses_between_the_groups_of_the_fabric():
    choice = chosen(SHAPE, pp=2, dp_replicate=2)
    found = plan_certificate(FABRIC, choice, SHAPE, line=LINE)
    assert (found.groups, found.data_crossings, found.stage_crossings) in {(2, 0, 2), (2, 4, 0)}
    traffic = pipeline_traffic(choice, SHAPE, line=LINE)
    assert found.bytes_between == min(2 * traffic.stage_edge_bytes, 4 * traffic.data_edge_bytes)
    small = Fabric(groups=FABRIC.groups[:1])
    assert plan_certificate(small, choice, SHAPE, line=LINE) is None
    three = replace(choice, mesh=Mesh(pp=3, tp=8), num_nodes=4)
    assert plan_certificate(FABRIC, three, SHAPE, line=LINE) is None


@pytest.mark.parametrize("source", ["formula", "traced"])
@pytest.mark.parametrize(("layers", "crossings"), [(2, (4, 0)), (32, (0, 2))])
def test_a_pipeline_and_its_certificate_have_one_order_of_servers(layers, crossings, source):
    """Of two layers stages send more than rings: each stage is on both groups, its rings are hashed onto two uplinks.
    Of 32 layers it is the other way round, and what stages hand on is hashed."""
    fabric = replace(
        FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=2, path_policy="hash",
        nic_latency_seconds=20e-6,
    )  # fmt: skip
    profile = (
        formula_profile(replace(EIGHT, layers=layers))
        if source == "formula"
        else transformer(sequence=4096, **TRACED | {"layers": layers})
    )
    asked = line(
        batch=BATCH,
        steps=10,
        strategy="explicit",
        mesh=MeshTable(tp=8, pp=2, dp_shard=2, micro_batch=1, pp_schedule="1f1b"),
    )
    choice = choose_plan(asked, with_network(H100, fabric), gpus(8, 4, name="h100"), profile, fabric=fabric)
    found = plan_certificate(fabric, choice, profile, line=asked)
    assert (found.data_crossings, found.stage_crossings) == crossings
    share = 1 / 16 + 15 / 16 / 2  # two flows on two uplinks, up and down at both groups
    across = [40e9 * (share if crosses else 1.0) for crosses in crossings]
    width = 2 * 4096 * 4096 / (8 if source == "formula" else 1)
    handed = 128 * 2 * (width / across[1] + 20e-6)
    seconds = {each.part: each.seconds for each in choice.forecast.terms}
    exchange = seconds["compute"] * (1 / found.speed_up - 1)
    assert seconds["communication"] == pytest.approx(exchange + handed, rel=1e-9)


@pytest.mark.parametrize("homes", [False, True])
def test_plan_and_certificate_count_the_same_interruptions(homes):
    rates = FailureRates(gpu_hours=5e4, link_hours=2e3, optic_hours=1e5, leaf_hours=1e3)
    fabric = replace(FABRIC, failures=rates, dual_homed=homes)
    choice = chosen(SHAPE, site=with_network(H100, fabric), pp=2, dp_replicate=2)
    found = plan_certificate(fabric, choice, SHAPE, line=LINE)
    hours = choice.forecast.wall_seconds / 3600
    an_hour = 32 * (1 / 5e4 + 1 / 2e3 + 6 / 1e5) + (0 if homes else 1 / 1e3)
    assert choice.forecast.interrupt_probability == found.interrupt_probability
    assert found.interrupt_probability == pytest.approx(-expm1(-hours * an_hour))


@pytest.mark.parametrize("policy", ["spray", "hash"])
@pytest.mark.parametrize(
    ("strategy", "degrees"),
    [
        ("explicit", {"tp": 1, "dp_shard": 32}), ("explicit", {"tp": 2, "dp_shard": 16}),
        ("explicit", {"tp": 4, "dp_shard": 8}), ("explicit", {"tp": 8, "dp_shard": 4}),
        ("explicit", {"tp": 1, "dp_replicate": 2, "dp_shard": 16}), ("zero2", {}), ("fsdp", {}), ("hsdp", {}),
    ],
)  # fmt: skip
def test_plan_and_certificate_have_the_same_step(strategy, degrees, policy):
    """With NICs of 50 GB/s at 80 %, messages that wait, and two uplinks a leaf that spray, or hash flows onto one."""
    fabric = replace(
        FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=2, path_policy=policy,
        nic_latency_seconds=20e-6,
    )  # fmt: skip
    site = with_network(with_latency(H100, link=5e-6, network=1.0), fabric)
    asked = line(batch=BATCH, steps=10, strategy=strategy, mesh=MeshTable(micro_batch=1, **degrees))
    choice = choose_plan(asked, site, gpus(8, 4, name="h100"), SHAPE, fabric=fabric)
    found = plan_certificate(fabric, choice, SHAPE, line=LINE, gpu=site.gpu["h100"])
    origin = next(each.origin for each in choice.forecast.terms if each.part == "communication")
    assert origin == f"given, latency given, paths {policy}"
    seconds = {each.part: each.seconds for each in choice.forecast.terms}
    share = seconds["compute"] / (seconds["compute"] + seconds["communication"])
    assert found.speed_up == pytest.approx(share, rel=1e-9)
    assert (found.overlap, found.worst_speed_up) == (0.0, found.speed_up)


@pytest.mark.parametrize("strategy", ["fsdp", "hsdp", "zero2"])
def test_a_traced_plan_and_its_certificate_have_the_same_exchange(strategy):
    """The root is gathered once a pass, and zero2 gathers in each: what the forecast counts of communication."""
    traced = transformer(sequence=4096, **TRACED)
    fabric = replace(FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=2,
                     path_policy="hash", nic_latency_seconds=20e-6)  # fmt: skip
    site = with_network(H100, fabric)
    asked = line(batch=BATCH, steps=10, strategy=strategy, mesh=MeshTable(micro_batch=1))
    choice = choose_plan(asked, site, gpus(8, 4, name="h100"), traced, fabric=fabric)
    found = plan_certificate(fabric, choice, traced, line=LINE, gpu=site.gpu["h100"])
    seconds = {each.part: each.seconds for each in choice.forecast.terms}
    assert found.speed_up == pytest.approx(seconds["compute"] / (seconds["compute"] + seconds["communication"]))


SQUEEZED = {
    "none": 1.0, "fp16": 1 / 2, "bf16": 1 / 2, "int8": 0.26,
    "powersgd": (sum(2 * (rows + columns) * count for rows, columns, count in MATRICES) + 5 * 4096) / ENTRIES,
    "topk": 32 / 2 * (4 + 4) / 4 * 0.01,
}  # fmt: skip
"""Of the bytes of an all-reduce in float32: powersgd sends two thin factors of each matrix, and norms whole; topk
gathers places and values of a hundredth from each of 32."""


@pytest.mark.parametrize("source", ["formula", "traced"])
@pytest.mark.parametrize("kind", SQUEEZED)
def test_plan_and_certificate_have_the_same_compressed_gradients(kind, source):
    compression = Compression(kind=kind, rank=2, ratio=0.01)
    asked = line(batch=BATCH, steps=10, strategy="ddp", mesh=MeshTable(micro_batch=1), compression=compression)
    profile = (
        TINY
        if source == "formula"
        else replace(transformer(sequence=4096, **TRACED | {"layers": 2}), shapes=TINY.shapes)
    )
    fabric = replace(
        FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=8, path_policy="spray"
    )
    choice = choose_plan(asked, with_network(H100, fabric), gpus(8, 4, name="h100"), profile, fabric=fabric)
    found = plan_certificate(fabric, choice, profile, line=asked)
    seconds = {each.part: each.seconds for each in choice.forecast.terms}
    assert found.speed_up == pytest.approx(seconds["compute"] / (seconds["compute"] + seconds["communication"]))
    sent = 2 * 31 / 32 * 4 * ENTRIES * SQUEEZED[kind]
    assert found.bytes_between == pytest.approx(2 * sent / 8, rel=1e-3)
    assert seconds["communication"] == pytest.approx(sent / min(300e9, 8 * 40e9), rel=1e-3)


@pytest.mark.parametrize("source", ["formula", "traced"])
@pytest.mark.parametrize(
    ("strategy", "degrees"), [("fsdp", {}), ("explicit", {"tp": 1, "dp_replicate": 2, "dp_shard": 16})]
)
def test_shards_are_reduced_in_halves_where_the_line_says_so(strategy, degrees, source):
    profile = SHAPE if source == "formula" else transformer(sequence=4096, **TRACED)
    fabric = replace(
        FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=8, path_policy="spray"
    )
    moved = {}
    for kind in ("none", "bf16"):
        asked = line(
            batch=BATCH,
            steps=10,
            strategy=strategy,
            mesh=MeshTable(micro_batch=1, **degrees),
            compression=Compression(kind=kind),
        )
        choice = choose_plan(asked, with_network(H100, fabric), gpus(8, 4, name="h100"), profile, fabric=fabric)
        found = plan_certificate(fabric, choice, profile, line=asked)
        seconds = {each.part: each.seconds for each in choice.forecast.terms}
        assert found.speed_up == pytest.approx(seconds["compute"] / (seconds["compute"] + seconds["communication"]))
        moved[kind] = sum(each.wire_bytes for each in plan_rings(choice, profile, line=asked))
    shards, replicas = (32, 1) if strategy == "fsdp" else (16, 2)
    whole = 4 * ((shards - 1) / shards + 2 * (replicas - 1) / replicas / shards) * profile.parameters
    assert moved["none"] - moved["bf16"] == pytest.approx(whole / 2)


def test_replicas_that_average_every_eighth_step_send_an_eighth():
    profile = transformer(sequence=4096, **TRACED)
    fabric = replace(
        FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=8, path_policy="spray"
    )
    asked = line(
        batch=BATCH,
        steps=10,
        strategy="diloco",
        mesh=MeshTable(micro_batch=1),
        compression=Compression(outer_steps=8, outer_lr=0.7),
    )
    choice = choose_plan(asked, with_network(H100, fabric), gpus(8, 4, name="h100"), profile, fabric=fabric)
    found = plan_certificate(fabric, choice, profile, line=asked)
    assert (choice.mesh.dp_replicate, choice.mesh.dp_shard) == (4, 8)
    assert found.bytes_between == pytest.approx(2 * 2 * 3 / 4 * 4 * profile.parameters / 8 / 8)
    seconds = {each.part: each.seconds for each in choice.forecast.terms}
    assert found.speed_up == pytest.approx(seconds["compute"] / (seconds["compute"] + seconds["communication"]))


def test_what_a_compression_leaves_of_unknown_shapes_is_not_certified():
    asked = line(
        batch=BATCH, steps=10, strategy="ddp", mesh=MeshTable(micro_batch=1), compression=Compression(kind="topk")
    )
    profile = transformer(sequence=4096, **TRACED | {"layers": 2})
    choice = choose_plan(asked, H100, gpus(8, 4, name="h100"), profile)
    assert choice.forecast.missing == "what topk leaves of gradients depends on their shapes, which are not known"
    assert plan_certificate(FABRIC, choice, profile, line=asked) is None


def with_latency(site, *, link, network):
    table = replace(site.gpu["h100"], link_latency_seconds=link, network_latency_seconds=network)
    return replace(site, gpu={"h100": table})


def test_flows_that_a_hash_puts_on_one_uplink_make_the_step_longer():
    """Two on the two uplinks of a leaf, up and down at both groups: one time in 16 all are apart, else two share."""
    fabric = replace(FABRIC, nic_bytes_per_second=50e9, intra_bus_bytes_per_second=300e9, leaf_uplinks=2)
    asked = line(batch=BATCH, steps=10, strategy="explicit", mesh=MeshTable(micro_batch=1, dp_replicate=2, dp_shard=16))
    times = []
    for policy in ("spray", "hash"):
        stated = replace(fabric, path_policy=policy)
        choice = choose_plan(asked, with_network(H100, stated), gpus(8, 4, name="h100"), SHAPE, fabric=stated)
        times.append(next(each.seconds for each in choice.forecast.terms if each.part == "communication"))
    averaged = 2 * (2 - 1) / 2 * 4 * EIGHT.parameters / 16 / 40e9
    all_apart = 0.5**4
    assert times[1] - times[0] == pytest.approx(averaged / (all_apart + (1 - all_apart) / 2) - averaged)


def test_peers_of_a_server_share_its_rails():
    """Four rings of two ranks a server on eight NICs: each NIC has half of what a rank sends."""
    choice = chosen(SHAPE, pp=2, tp=4, dp_replicate=4)
    found = pipeline_traffic(choice, SHAPE, line=LINE)
    weights = EIGHT.parameters / 8
    assert found.data_edge_bytes == pytest.approx(2 * (4 - 1) / 4 * 4 * weights / 2)


def test_rings_of_shared_optimizers_leave_out_parameters_that_owners_send():
    asked = line(batch=BATCH, steps=10, strategy="zero1", mesh=MeshTable(micro_batch=1))
    choice = choose_plan(asked, H100, gpus(8, 4, name="h100"), TINY)
    (whole,) = plan_rings(choice, TINY, line=LINE)
    (rest,) = plan_rings(choice, replace(TINY, matrix_work=WORK), line=LINE)
    ranks = choice.mesh.data_parallel
    assert whole.wire_bytes - rest.wire_bytes == pytest.approx((ranks - 1) / ranks * 4 * WORK.parameters)


def test_the_worst_case_is_next_to_an_overlap():
    choice = chosen(SHAPE, dp_shard=4)
    fabric = replace(FABRIC, nic_bytes_per_second=5e8, leaf_uplinks=8)
    found = plan_certificate(fabric, choice, SHAPE, line=LINE, overlap=0.5)
    worst = plan_certificate(fabric, choice, SHAPE, line=LINE)
    assert worst.speed_up < found.speed_up < 1
    assert found.worst_speed_up == worst.speed_up
    assert 1 / found.speed_up == pytest.approx(1 / worst.speed_up - 0.5)
    assert (
        f"speed-up {100 * found.speed_up:.1f} % with overlap 50 %, {100 * worst.speed_up:.1f} % without" in found.line
    )
