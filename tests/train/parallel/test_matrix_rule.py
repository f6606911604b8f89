"""A matrix rule of a line under every strategy: the weights of one process, each matrix updated once a step."""

from dataclasses import replace
from functools import cache

import pytest
from tests.train.gang import ROOT, Gang, make_plan, sample_text
from tests.train.trained import gaps, trained, weight_gap

from gangline.errors import ConfigError, IntegrityError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory, Recovery

pytestmark = pytest.mark.long

BYTEGPT = ROOT / "examples" / "bytegpt"
MUON = {
    "rule": "muon", "lr": 0.02, "dtype": "float32", "exclude": ["token", "position", "head", "norm"],
    "route": [{"match": "layers.*.wqkv.weight", "split": "qkv_by_group", "heads": 2, "kv_heads": 2, "head_dim": 32}],
}  # fmt: skip
ROUTES = {name: MUON[name] for name in ("exclude", "route")}
RULES = {
    "muon": MUON,
    "shampoo": ROUTES | {"rule": "shampoo", "refresh_every": 2, "refresh": "together"},
    "soap": ROUTES | {"rule": "soap", "refresh_every": 2, "refresh": "together"},
}
HARD = {"clip_norm": 0.5, "micro_batch": 2}
"""Clipping, and more than one pass of each rank; not for SOAP, which makes whole steps of what rounding leaves in
directions that no sample has."""
MATRICES = 2 * (3 + 1 + 2)
NOISE = 1e-6
"""Of weights: another order of sums changes 1e-7, and Newton-Schulz amplifies it up to three times."""

RESIZED = {"muon": NOISE, "shampoo": NOISE, "soap": 1e-3}
"""On four ranks sums have another order than on two; for SOAP see `HARD`. With exact sums all three give the same bits:
`tests/faults/t/test_t7_matrix_rules.py`."""

FOUR = (("ddp", Mesh(dp_replicate=4)), ("zero1", Mesh(dp_replicate=4)), ("fsdp", Mesh(dp_shard=4)))
BFLOAT16_LOSS = 2e-4
"""Of losses, relative: products of 8 bits amplify what another order of sums changes to a hundredth of an update."""


def gang_in(folder, warm):
    """A gang whose code is bytegpt, and what its plan says of its data."""
    gang = Gang(folder, warm, BYTEGPT)
    return gang, gang.put_text(sample_text())


def plan_of(strategy, mesh, data, **changes):
    given = {"optimizer": MUON, "mesh": mesh, "data": data, "model": {"layers": 2, "width": 64, "context": 16}}
    hard = {} if changes.get("optimizer", MUON).get("rule") == "soap" else HARD
    return replace(make_plan("none"), strategy=strategy, **given | hard | changes)


def without_noise(found):
    """Attention ignores the bias of keys: AdamW makes steps of what rounding left of its gradient."""
    weights, losses = found
    return {name: each for name, each in weights.items() if not name.endswith("wqkv.bias")}, losses


@pytest.fixture(scope="module")
def alone(warm, tmp_path_factory):
    """Weights and losses of one rank, by rule."""

    @cache
    def of_rule(rule):
        gang, data = gang_in(tmp_path_factory.mktemp("alone"), warm)
        return without_noise(trained(gang, plan_of("none", Mesh(), data, optimizer=RULES[rule])))

    return of_rule


@pytest.mark.parametrize(
    ("rule", "strategy", "mesh"),
    [
        ("muon", "ddp", Mesh(dp_replicate=2)),
        ("muon", "zero1", Mesh(dp_replicate=2)),
        ("muon", "tp", Mesh(tp=2)),
        ("muon", "hsdp", Mesh(dp_replicate=2, dp_shard=2)),
        ("muon", "3d", Mesh(pp=2, tp=2)),
        ("muon", "tp", Mesh(dp_shard=2, tp=2)),
        pytest.param("muon", "tp", Mesh(dp_replicate=2, tp=2), marks=pytest.mark.long),
        ("muon", "fsdp", Mesh(dp_shard=2)),
        ("muon", "pp", Mesh(pp=2)),
        *(pytest.param("muon", *each, marks=pytest.mark.long) for each in FOUR),
        ("shampoo", "pp", Mesh(pp=2)),
        ("soap", "fsdp", Mesh(dp_shard=2)),
        ("soap", "zero1", Mesh(dp_replicate=2)),
    ],
    ids=lambda each: each if isinstance(each, str) else "x".join(str(n) for n in each.axes.values() if n > 1),
)
def test_a_gang_trains_the_weights_of_one_process(warm, tmp_path, alone, rule, strategy, mesh):
    gang, data = gang_in(tmp_path, warm)
    found = without_noise(trained(gang, plan_of(strategy, mesh, data, optimizer=RULES[rule])))
    weights, losses = gaps(found, alone(rule))
    assert weights <= NOISE
    assert losses <= 1e-5
    updates = gang.events(event="matrix_updates")[-1]
    assert updates["matrices"] == MATRICES
    assert updates["wanted"] == updates["computed"] == MATRICES * updates["steps"]


@pytest.mark.long
def test_four_stages_and_four_parts_of_heads_train_the_weights_of_one_process(warm, tmp_path):
    """Of a model that has as many blocks and heads."""
    table = MUON | {"route": [MUON["route"][0] | {"heads": 4, "kv_heads": 4}]}
    found = {}
    for strategy, mesh in (("none", Mesh()), ("tp", Mesh(tp=4)), ("pp", Mesh(pp=4))):
        gang, data = gang_in(tmp_path / strategy, warm)
        model = {"layers": 4, "width": 128, "context": 16}
        plan = plan_of(strategy, mesh, data, optimizer=table, model=model)
        found[strategy] = without_noise(trained(gang, plan))
        updates = gang.events(event="matrix_updates")[-1]
        assert updates["wanted"] == updates["computed"] == 2 * MATRICES * updates["steps"]
    for each in ("tp", "pp"):
        weights, losses = gaps(found[each], found["none"])
        assert weights <= 3 * NOISE, "sums of four parts, of rows twice as long"
        assert losses <= 1e-5


@pytest.mark.long
def test_the_default_dtype_trains_the_same_losses_under_every_strategy(warm, tmp_path):
    table = {key: value for key, value in MUON.items() if key != "dtype"}
    losses = {}
    for strategy, mesh in (
        ("none", Mesh()), ("ddp", Mesh(dp_replicate=2)), ("zero1", Mesh(dp_replicate=2)), ("fsdp", Mesh(dp_shard=2)),
        ("tp", Mesh(tp=2)), ("pp", Mesh(pp=2)),
    ):  # fmt: skip
        gang, data = gang_in(tmp_path / strategy, warm)
        _, losses[strategy] = trained(gang, plan_of(strategy, mesh, data, optimizer=table))
    for found in losses.values():
        assert found == pytest.approx(losses["none"], rel=BFLOAT16_LOSS)


@pytest.mark.row("T7")
@pytest.mark.parametrize("rule", RULES)
def test_a_run_continues_under_another_strategy_and_number_of_ranks(warm, tmp_path, alone, rule):
    gang, data = gang_in(tmp_path, warm)
    first = plan_of("zero1", Mesh(dp_replicate=2), data, optimizer=RULES[rule], stop_at=3)
    trained(gang, first)
    whole = replace(first, stop_at=None, strategy="fsdp", mesh=Mesh(dp_shard=4))
    found, _ = without_noise(trained(gang, replace(whole, global_batch=8, micro_batch=2)))
    assert gang.events(event="resumed")[-1]["step"] == 3
    assert weight_gap(found, alone(rule)[0]) <= RESIZED[rule]


def test_a_checkpoint_of_another_rule_is_refused_by_name(warm, tmp_path):
    gang, data = gang_in(tmp_path, warm)
    trained(gang, plan_of("ddp", Mesh(dp_replicate=2), data, stop_at=3))
    codes = gang.run(plan_of("ddp", Mesh(dp_replicate=2), data, optimizer={}))
    assert set(codes) == {IntegrityError.exit_code}
    assert "only in the model or optimizer" in gang.log()


def test_live_replicas_need_a_rule_whose_state_all_of_them_have(warm, tmp_path):
    gang, data = gang_in(tmp_path, warm)
    live = plan_of("ddp", Mesh(dp_replicate=2), data, optimizer=RULES["soap"], recovery=Recovery(mode="live"))
    assert set(gang.run(live)) == {ConfigError.exit_code}
    assert 'optimizer.copies = "repeat", recovery.mode = "restart", or rule = "muon" works' in gang.log()


@pytest.mark.parametrize("rule", RULES)
def test_copies_that_repeat_all_updates_train_the_weights_of_those_that_share_them(warm, tmp_path, rule):
    found = {}
    for copies in ("share", "repeat"):
        gang, data = gang_in(tmp_path / copies, warm)
        table = RULES[rule] | {"copies": copies}
        found[copies] = trained(gang, plan_of("hsdp", Mesh(dp_replicate=2, dp_shard=2), data, optimizer=table))
    assert gaps(found["repeat"], found["share"]) == (0.0, 0.0)
    updates = gang.events(event="matrix_updates")[-1]
    assert (updates["matrices"], updates["repeats"]) == (MATRICES, 2)
    assert updates["wanted"] == updates["computed"] == 2 * MATRICES * updates["steps"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "mesh", "changes"),
    [
        ("fsdp", Mesh(dp_shard=2), {"memory": Memory(activation_checkpointing="full")}),
        ("zero1", Mesh(dp_replicate=2), {"memory": Memory(activation_checkpointing="full")}),
        ("ddp", Mesh(dp_replicate=2), {"memory": Memory(loss_chunks=2)}),
        ("cp", Mesh(cp=2), {}),
    ],
)
def test_what_saves_memory_trains_the_weights_of_one_process(warm, tmp_path, alone, strategy, mesh, changes):
    gang, data = gang_in(tmp_path, warm)
    found = without_noise(trained(gang, plan_of(strategy, mesh, data, **changes)))
    assert gaps(found, alone("muon"))[0] <= 5 * NOISE, "rings and pieces of a loss add up in another order"


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "mesh"), [("ddp", Mesh(dp_replicate=2)), ("zero1", Mesh(dp_replicate=2)), ("fsdp", Mesh(dp_shard=2))]
)
def test_fp16_makes_the_steps_of_fp32_but_those_that_overflow(warm, tmp_path, alone, strategy, mesh):
    gang, data = gang_in(tmp_path, warm)
    _, losses = trained(gang, plan_of(strategy, mesh, data, precision="fp16"))
    assert losses[0] == pytest.approx(alone("muon")[1][0], rel=1e-3)
    assert losses[-1] < 0.95 * losses[0]
    updates = gang.events(event="matrix_updates")[-1]
    assert updates["wanted"] == updates["computed"]


def moe_plan(strategy, mesh, data):
    """Eight matrices of experts in each of two layers, in stacks."""
    table = MUON | {"exclude": [*MUON["exclude"], "router"], "route": [{"match": "*.experts.*", "split": "stack"}]}
    plan = plan_of(strategy, mesh, data, optimizer=table)
    model = {"layers": 2, "width": 64, "context": 16, "experts": 4}
    return replace(plan, program=replace(plan.program, task="model:ByteExperts"), model=model)


@pytest.mark.long
def test_experts_are_matrices_of_their_own_no_matter_who_holds_them(warm, tmp_path):
    losses = {}
    for strategy, mesh in (("none", Mesh()), ("ep", Mesh(dp_shard=2, ep=2)), ("fsdp", Mesh(dp_shard=2))):
        gang = Gang(tmp_path / strategy, warm, ROOT / "examples" / "moe")
        _, losses[strategy] = trained(gang, moe_plan(strategy, mesh, gang.put_text(sample_text())))
        updates = gang.events(event="matrix_updates")[-1]
        assert updates["wanted"] == updates["computed"] == 2 * (2 + 8) * updates["steps"]
    assert losses["ep"] == pytest.approx(losses["none"], rel=1e-5)
    assert losses["fsdp"] == pytest.approx(losses["none"], rel=1e-5)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("model:ByteGPT", "wanted a MatrixRule, found ByteGPT"),
        ("model:Absent", "wanted a class of the code layer"),
        ("gangline.optim.rules.muon:Muon", "with ['momentums']"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_name(warm, tmp_path, rule, reason):
    gang, data = gang_in(tmp_path, warm)
    options = {"momentums": 1} if "Muon" in rule else {}
    assert set(gang.run(plan_of("none", Mesh(), data, optimizer={"rule": rule, **options}))) == {ConfigError.exit_code}
    assert reason in gang.log()
