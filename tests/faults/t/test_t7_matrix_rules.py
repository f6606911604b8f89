"""T7: a gang under a matrix rule that changes strategy and number of ranks ends with the bits of one that does not.

Gradients are exact, so that their sums are the same bits on any ranks; what is left is the optimizer's: momentum that
is cut anew, factors and bases that go to other owners, the steps in which those are refreshed. All parameters are
matrices: AdamW's square of a gradient has other bits in torch where a tensor is cut elsewhere.
"""

import json
from dataclasses import replace

import pytest
from tests.faults.t.ranks import KEY as STAND_KEY
from tests.faults.t.ranks import RUN, await_step, finish, submit
from tests.train.gang import KEY, ROOT, make_plan

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.keeper.ipc.requests import RESIZE_FILE
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Size

pytestmark = [pytest.mark.row("T7"), pytest.mark.long]
EXACT = ROOT / "tests" / "train" / "exact"
RULES = {
    "muon": {"dtype": "float32"}, "shampoo": {"refresh_every": 3}, "soap": {"refresh_every": 3},
}  # fmt: skip
SIZES = [
    ("zero1", Mesh(dp_replicate=2)), ("fsdp", Mesh(dp_shard=4)), ("none", Mesh()),
    ("hsdp", Mesh(dp_replicate=2, dp_shard=2)), ("ddp", Mesh(dp_replicate=2)),
]  # fmt: skip
"""One after the other, each for as many steps; refreshes are dealt out for the first."""
TURN = 4


def plan_of(strategy, mesh, rule):
    return make_plan(
        strategy, mesh=mesh, program=ProgramSpec(task="model:Exact"), model={}, steps=TURN * len(SIZES),
        micro_batch=8 // mesh.data_parallel, checkpoint=CheckpointPolicy(every=TURN, asynchronous=False),
        optimizer={"rule": rule, "exclude": [], "lr": 0.02, "weight_decay": 0.1, **RULES[rule]},
    )  # fmt: skip


def outcome(store, checkpoint, key):
    """Weights, state of the optimizer and numbers of its groups."""
    state = CheckpointFolder.open(store, checkpoint, key).state()
    return stored_digests(store, checkpoint, key, optimizer=True), state.optimizer


def outcome_of(gang):
    return outcome(gang.store, gang.result().checkpoint, KEY)


@pytest.mark.parametrize("rule", RULES)
def test_a_resized_gang_ends_with_the_bits_of_one_that_was_not(make_gang, rule):
    whole, resized = make_gang(EXACT), make_gang(EXACT)
    assert set(whole.run(plan_of(*SIZES[0], rule))) == {0}, whole.log()
    for turn, size in enumerate(SIZES, 1):
        plan = replace(plan_of(*size, rule), stop_at=TURN * turn if turn < len(SIZES) else None)
        assert set(resized.run(plan)) == {0}, resized.log()
    assert [each["step"] for each in resized.events(event="resumed")] == [TURN * turn for turn in range(1, len(SIZES))]
    assert outcome_of(resized) == outcome_of(whole)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rule", RULES)
def test_a_gang_that_its_keeper_resizes_does_too_at_whatever_step_that_is(stand, make_gang, rule):
    others = [
        Size(name=str(mesh.world_size), strategy=strategy, mesh=mesh, micro_batch=8 // mesh.data_parallel)
        for strategy, mesh in SIZES[1:3]
    ]
    plan = replace(plan_of(*SIZES[0], rule), sizes=tuple(others), run=RUN, run_prefix=f"runs/p/c/{RUN}")
    home = submit(stand, plan, code="exact", PACE="0.2")
    for generation, size in enumerate(others):
        step = await_step(home, 3 * (generation + 1), generation=generation)["step"]
        (home / ".wish").write_text(json.dumps({"ranks": size.mesh.world_size}))
        (home / ".wish").rename(home / RESIZE_FILE)
        await_step(home, step + 1, generation=generation + 1)
    end = finish(stand)
    assert (end.exit_code, end.restarts, end.generation) == (0, 0, len(others)), end
    whole = make_gang(EXACT)
    assert set(whole.run(plan_of(*SIZES[0], rule))) == {0}, whole.log()
    last = json.loads((home / "out" / "result.json").read_bytes())["checkpoint"]
    assert outcome(stand.store, last, STAND_KEY) == outcome_of(whole)
