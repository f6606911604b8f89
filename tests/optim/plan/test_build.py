"""A plan as a whole: the same on every rank, each matrix once, and options that are kept or refused by name."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.qwen3 import QWEN3

from gangline.errors import ConfigError
from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import DeviceCurve, MuonSpec, ShampooSpec, SoapSpec
from gangline.optim.plan.explain import explain
from gangline.optim.plan.matrix import FragmentSplit, LogicalMatrix, MatrixStorage, fragments
from gangline.optim.plan.optimizer_plan import OptimPlan, PlanOptions

SMALL = QWEN3["1.7B"].matrices("split")
RULES = [MuonSpec(), MuonSpec(kernel="gram"), ShampooSpec(), SoapSpec()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize(("ranks", "hosts"), [(1, 1), (8, 1), (1, 4), (4, 4)])
def test_ranks_that_list_parameters_in_another_order_agree(rule, ranks, hosts):
    plan = build_plan(SMALL, rule, ranks=ranks, hosts=hosts)
    shuffled = random.Random(7).sample(SMALL, len(SMALL))
    assert build_plan(shuffled, rule, ranks=ranks, hosts=hosts).plan_hash == plan.plan_hash
    assert OptimPlan.from_json(plan.to_json()) == plan


def test_layers_are_ordered_by_number():
    matrices = [LogicalMatrix(fqn=f"layers.{layer}.w", shape=(4, 4)) for layer in (10, 9, 2)]
    assert [each.matrix.fqn for each in build_plan(matrices, MuonSpec()).matrices] == [
        "layers.2.w", "layers.9.w", "layers.10.w",
    ]  # fmt: skip


def test_the_hash_changes_with_whatever_a_plan_depends_on():
    matrix = {"fqn": "w", "shape": (64, 32)}
    hashes = [
        build_plan([LogicalMatrix(**{**matrix, **change})], rule, ranks=ranks, hosts=hosts, options=options).plan_hash
        for change, rule, ranks, hosts, options in [
            ({}, MuonSpec(), 1, 1, PlanOptions()),
            ({"fqn": "v"}, MuonSpec(), 1, 1, PlanOptions()),
            ({"shape": (64, 33)}, MuonSpec(), 1, 1, PlanOptions()),
            ({"dtype": "bfloat16"}, MuonSpec(), 1, 1, PlanOptions()),
            ({"storage": MatrixStorage(axes=(("tp", 0),))}, MuonSpec(), 1, 1, PlanOptions()),
            ({"storage": MatrixStorage(axes=(("tp", None),))}, MuonSpec(), 1, 1, PlanOptions()),
            ({"storage": MatrixStorage(flat_range=(0, 2048))}, MuonSpec(), 1, 1, PlanOptions()),
            ({}, MuonSpec(kernel="gram"), 1, 1, PlanOptions()),
            ({}, MuonSpec(), 2, 1, PlanOptions()),
            ({}, MuonSpec(), 1, 2, PlanOptions()),
            ({}, MuonSpec(), 1, 1, PlanOptions(c_max_bytes=5)),
        ]
    ]
    assert len(set(hashes)) == len(hashes)


shapes = st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)), min_size=1, max_size=12)


@given(
    shapes=shapes, ranks=st.integers(1, 4), hosts=st.integers(1, 4), c_max=st.sampled_from([1, 4000, 1 << 30]),
    rule=st.sampled_from(RULES),
)  # fmt: skip
@settings(max_examples=60)
def test_every_matrix_is_updated_once_where_the_plan_says(shapes, ranks, hosts, c_max, rule):
    matrices = [LogicalMatrix(fqn=f"m{at}", shape=shape) for at, shape in enumerate(shapes)]
    plan = build_plan(matrices, rule, ranks=ranks, hosts=hosts, options=PlanOptions(c_max_bytes=c_max))
    found = {
        at: (owner, host, group)
        for owner, groups in enumerate(plan.groups)
        for group, of_hosts in enumerate(groups)
        for host, places in enumerate(of_hosts)
        for at in places
    }
    assert sum(len(places) for groups in plan.groups for group in groups for places in group) == len(matrices)
    assert found == {at: (each.owner, each.host, each.group) for at, each in enumerate(plan.matrices)}
    assert {each.matrix for each in plan.matrices} == set(matrices)
    assert sum(plan.loads) == pytest.approx(sum(each.seconds for each in plan.matrices))
    assert plan.bound <= max(plan.loads) * (1 + 1e-9)
    assert all(each.phase < rule.refresh_every for each in plan.matrices)
    assert {each.is_oversize for each in plan.matrices if each.matrix.size(4).value <= c_max or hosts == 1} <= {False}


def test_owner_state_is_within_its_memory():
    limit = 400_000_000
    plan = build_plan(SMALL, ShampooSpec(), ranks=64, options=PlanOptions(owner_memory_bytes=2 * limit))
    assert 0 < max(plan.owner_state_bytes) <= 2 * limit
    with pytest.raises(ConfigError, match="owner_memory_bytes = 400000000; use"):
        build_plan(SMALL, ShampooSpec(), ranks=64, options=PlanOptions(owner_memory_bytes=limit))


@pytest.mark.parametrize("hosts", [1, 4])
def test_what_a_plan_without_a_limit_holds_is_a_limit_that_works(hosts):
    matrices = QWEN3["1.7B"].matrices("fused")
    held = max(build_plan(matrices, SoapSpec(), ranks=16, hosts=hosts).owner_state_bytes)
    options = PlanOptions(owner_memory_bytes=held)
    assert max(build_plan(matrices, SoapSpec(), ranks=16, hosts=hosts, options=options).owner_state_bytes) <= held


def test_a_matrix_above_the_ceiling_is_reported_or_refused():
    plan = build_plan(SMALL, MuonSpec(), ranks=2, hosts=2, options=PlanOptions(c_max_bytes=20_000_000))
    assert sum(each.is_oversize for each in plan.matrices) == 3 * 28
    assert "oversize 84 matrices above c_max have slots of their own, the first is layers.0.mlp.down.weight" in explain(
        plan
    )
    with pytest.raises(ConfigError, match=r"layers.0.mlp.down.weight needs 50 MB .* use c_max_bytes = 50331648"):
        build_plan(SMALL, MuonSpec(), ranks=2, hosts=2, options=PlanOptions(c_max_bytes=20_000_000, oversize="error"))


def test_rows_that_alternate_go_owner_by_owner():
    matrices = fragments("fc1", (64, 16), FragmentSplit(kind="gate_up_interleaved"))
    assert build_plan(matrices, MuonSpec(), ranks=2).geometry == "owner"
    with pytest.raises(ConfigError, match=r"geometry = 'permuted' needs fragments of contiguous rows"):
        build_plan(matrices, MuonSpec(), ranks=2, options=PlanOptions(geometry="permuted"))


@pytest.mark.parametrize(
    ("matrices", "ranks", "message"),
    [
        ([], 1, "the matrix rule has no matrix; check exclude and match"),
        ([SMALL[0], SMALL[1], SMALL[0]], 1, f"claimed twice by matrix rules: {SMALL[0].fqn}"),
        (SMALL, 0, "1 owner and 1 host or more, found 0 and 1"),
    ],
)
def test_what_is_not_a_plan_is_refused(matrices, ranks, message):
    with pytest.raises(ConfigError, match=message):
        build_plan(matrices, MuonSpec(), ranks=ranks)


@pytest.mark.parametrize(
    "option", [{"alpha": 1.5}, {"bucket_elements": 0}, {"c_max_bytes": 0}, {"owner_memory_bytes": -1}]
)
def test_an_option_out_of_range_is_refused_by_its_key(option):
    with pytest.raises(ConfigError, match=f"optimizer.*{next(iter(option))}"):
        PlanOptions(**option)


def test_teams_share_large_matrices_of_whole_ranks():
    matrices = QWEN3["8B"].matrices("fused")
    plan = build_plan(matrices, MuonSpec(), ranks=256, options=PlanOptions(team="auto"))
    alone = build_plan(matrices, MuonSpec(), ranks=256)
    assert max(plan.loads) < 0.5 * max(alone.loads)
    for each in plan.matrices:
        assert not each.team or each.team[0] == each.owner
    for rank, groups in enumerate(plan.groups):
        for at in (at for group in groups for host in group for at in host):
            assert rank in (plan.matrices[at].team or (plan.matrices[at].owner,))
    assert "not bitwise equal to one owner's updates" in explain(plan)
    assert plan.bound <= max(plan.loads)
    with pytest.raises(ConfigError, match="team = 'auto' needs Muon and geometry 'owner', found shampoo"):
        build_plan(matrices, ShampooSpec(), ranks=32, options=PlanOptions(team="auto"))


def test_the_explanation_has_balance_synchronization_groups_and_times():
    text = explain(build_plan(QWEN3["32B"].matrices("split"), MuonSpec(), ranks=32, hosts=8))
    assert text.splitlines()[0].startswith("muon/standard: 448 matrices, 32 owners x 8 hosts, plan ")
    assert "max/mean 1.000 (bound 1.000, optimal)" in text
    assert "G3, each matrix to its owner: 10 buckets, 448 operations," in text
    assert "step     28.72 ms of matrices alone: compute 25.19 ms" in text


def test_state_of_a_dtype_that_has_no_size_here_is_refused():
    class OddSpec(ShampooSpec):
        def state(self, shape):
            return {"factor": (shape, "float8", "owner")}

    with pytest.raises(ConfigError, match="state of rule 'shampoo' has dtype 'float8'; use one of float64"):
        build_plan(SMALL, OddSpec())


def test_matrices_that_take_no_time_are_planned():
    options = PlanOptions(device=DeviceCurve(launch_seconds=0.0), geometry="contiguous")
    plan = build_plan(
        [LogicalMatrix(fqn=f"w{at}", shape=(1, 1)) for at in range(3)], MuonSpec(), ranks=2, options=options
    )
    assert len(plan.matrices) == 3


def test_the_first_refresh_is_in_the_explanation():
    text = explain(build_plan(QWEN3["8B"].matrices("split"), SoapSpec(), ranks=32))
    assert "owner state at most" in text
    assert "refresh  every 10 steps, in phases; step 0 computes all roots and bases: " in text


@pytest.mark.parametrize(("ranks", "hosts"), [(256, 1), (32, 8)])
def test_a_plan_of_32b_takes_less_than_a_second_of_the_processor(ranks, hosts):
    begin = time.process_time()
    build_plan(QWEN3["32B"].matrices("split"), MuonSpec(), ranks=ranks, hosts=hosts)
    assert time.process_time() - begin < 1


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "hosts"), [(256, 1), (32, 8)])
def test_a_plan_of_20_000_experts_takes_less_than_five_seconds_of_the_processor(ranks, hosts):
    stacks = [(f"layers.{layer}.w{part}", (140, 768, 2048)) for layer in range(48) for part in range(3)]
    matrices = [each for fqn, shape in stacks for each in fragments(fqn, shape, FragmentSplit(kind="stack"))]
    begin = time.process_time()
    plan = build_plan(matrices, MuonSpec(), ranks=ranks, hosts=hosts)
    assert time.process_time() - begin < 5
    assert len(plan.matrices) == 20_160


@pytest.mark.parametrize(("ranks", "c_max", "together"), [(1, 1 << 30, 4), (2, 1 << 30, 3), (1, 2 * 4 * 64 * 64, 2)])
def test_matrices_that_are_launched_together_share_the_launch(ranks, c_max, together):
    device = DeviceCurve(launch_seconds=1.0)
    matrices = [LogicalMatrix(fqn=f"layers.{layer}.w", shape=(64, 64)) for layer in range(6)]
    alone, batched = (
        build_plan(
            matrices, MuonSpec(), ranks=ranks, options=PlanOptions(device=device, batch=batch, c_max_bytes=c_max)
        )
        for batch in (1, 4)
    )
    saved = {round(one.seconds - each.seconds, 9) for one, each in zip(alone.matrices, batched.matrices, strict=True)}
    assert saved == {round(1 - 1 / together, 9)}


def test_fragments_of_one_parameter_are_ordered_by_their_rows():
    """`q` and `k` have one name and `up` comes after `gate` in any list."""
    split = FragmentSplit(kind="qkv", heads=2, kv_heads=2, head_dim=8)
    matrices = [*fragments("qkv", (48, 16), split), *fragments("fc1", (32, 16), FragmentSplit(kind="gate_up"))]
    plans = [build_plan(each, MuonSpec(), ranks=2) for each in (matrices, matrices[::-1])]
    assert [each.matrix.fragment for each in plans[0].matrices] == ["gate", "up", "q", "k", "v"]
    assert plans[0].plan_hash == plans[1].plan_hash
