"""T6: a kill at any step; weights, optimizer, generators and cursor end as those of a run that nothing befell."""

import pytest
from tests.faults.t.ranks import chance
from tests.train.gang import KEY, tiny_plan

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.spec.plan import CheckpointPolicy

pytestmark = [pytest.mark.row("T6", full="a kill at each of 50 steps"), pytest.mark.timeout(300), pytest.mark.long]
MODEL = {"width": 8, "dropout": 0.2}
ALL = 50
RULES = {rule: {"rule": rule, "exclude": [], **more} for rule, more in {
    "muon": {"dtype": "float32"}, "soap": {"refresh_every": 3}, "shampoo": {"refresh_every": 3},
}.items()}  # fmt: skip
"""Matrix rules: momentum with the parameter, factors and bases on owners, refreshed in turns."""


def outcome(gang, plan, codes):
    """All that a checkpoint holds, but for who wrote it when."""
    assert codes == [0] * plan.world_size, gang.log()
    last = gang.result().checkpoint
    state = CheckpointFolder.open(gang.store, last, KEY).state()
    losses = {line["step"]: line["loss"] for line in gang.metrics()}
    return stored_digests(gang.store, last, KEY), state.optimizer, state.numbers, state.ranks, losses


@pytest.fixture(scope="module")
def unbroken():
    """One run a length, kept for all kills."""
    return {}


def kills(seed):
    return sorted(chance("T6", seed).sample(range(1, 13), 3))


@pytest.mark.parametrize("strategy", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_three_kills_of_twelve_steps(make_gang, unbroken, seed, strategy):
    for step in kills(seed):
        assert_same_bits(make_gang, unbroken, strategy, step, steps=12)


@pytest.mark.parametrize(
    ("strategy", "rule"),
    [
        ("zero1", "soap"),
        ("fsdp", "muon"),
        pytest.param("ddp", "muon", marks=pytest.mark.slow),
        pytest.param("fsdp", "shampoo", marks=pytest.mark.slow),
    ],
)
def test_a_kill_under_a_matrix_rule(make_gang, unbroken, seed, *, strategy, rule):
    assert_same_bits(make_gang, unbroken, strategy, kills(seed)[1], steps=12, rule=rule)


@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, ALL + 1))
def test_kill_at_each_of_50_steps(make_gang, unbroken, seed, step):
    assert_same_bits(make_gang, unbroken, ("ddp", "fsdp")[(seed + step) % 2], step, steps=ALL)


def assert_same_bits(make_gang, unbroken, strategy, step, *, steps, rule=""):
    policy = CheckpointPolicy(every=5, asynchronous=False)
    plan = tiny_plan(
        strategy, model=MODEL, steps=steps, checkpoint=policy, micro_batch=4, optimizer=RULES.get(rule, {})
    )  # fmt: skip
    if (strategy, steps, rule) not in unbroken:
        whole = make_gang()
        unbroken[strategy, steps, rule] = outcome(whole, plan, whole.run(plan))
    gang, rank = make_gang(), step % 2
    codes = gang.run(plan, STRIKE=f"kill:{rank}:{step}")
    assert codes[rank] == 137, codes
    assert outcome(gang, plan, gang.run(plan)) == unbroken[strategy, steps, rule], f"killed rank {rank} in step {step}"
