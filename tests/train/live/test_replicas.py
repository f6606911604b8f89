"""A rank of a live gang is killed: the others keep process and state, the new one heals from them."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.contracts.launcher.gangs import poll
from tests.faults.t.ranks import KEY, await_step, chance, finish, hurry, recorded_plan, submit
from tests.train.gang import stored_model, tiny_plan
from tests.train.trained import weight_gap

from gangline.checkpoint.format.export import export_model
from gangline.faults.process_faults import kill_rank
from gangline.launch.local.folder import GangFolder
from gangline.launch.local.follower import Tail
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Recovery

STEPS = 24
LIVE = Recovery(mode="live", max_events=10)


def live_plan(ranks: int = 2, *, steps: int = STEPS, **changes):
    """Over live replicas, saving at the end only: whatever is there in between came from memory."""
    return recorded_plan(
        **{"steps": steps, "every": steps, "recovery": LIVE, "mesh": Mesh(dp_replicate=ranks)} | changes
    )


def events_of(home, rank: int, kind: str) -> list[dict]:
    return [each for each in Tail(home / "out" / "ranks" / f"{rank}.jsonl").events() if each["event"] == kind]


def steps_of(home, rank: int) -> list[int]:
    return [each["step"] for each in events_of(home, rank, "step")]


def last_model(store, home, folder) -> dict[str, torch.Tensor]:
    key = events_of(home, 0, "saved")[-1]["key"]
    files = export_model(store, key, KEY, folder, metadata={})
    return {name: each for file in files if file.suffix == ".safetensors" for name, each in load_file(file).items()}


MUON = {"rule": "muon", "dtype": "float32", "exclude": []}
SOAP, SHAMPOO = ({"rule": rule, "refresh_every": 3, "copies": "repeat", "exclude": []} for rule in ("soap", "shampoo"))


def unbroken_model(gang, plan) -> dict[str, torch.Tensor]:
    """Of a gang of as many ranks to which nothing happened."""
    policy = CheckpointPolicy(every=plan.steps, asynchronous=False)
    calm = tiny_plan(
        plan.strategy, mesh=plan.mesh, steps=plan.steps, micro_batch=plan.micro_batch, checkpoint=policy,
        model=plan.model, optimizer=plan.optimizer,
    )  # fmt: skip
    assert set(gang.run(calm)) == {0}
    return stored_model(gang, gang.result().checkpoint)


@pytest.mark.timeout(240)
@pytest.mark.proves("live replicas", oracle="an unbroken run of as many ranks, weights", gate="same bits")
@pytest.mark.parametrize(
    ("victim", "optimizer"),
    [
        (0, {}),
        (1, MUON),
        (0, SOAP),
        (1, SHAMPOO),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(1, {}), (0, MUON)]),
    ],
)
@pytest.mark.long
def test_survivor_loses_no_step_and_the_run_ends_with_the_bits_of_an_unbroken_one(
    stand, make_gang, tmp_path, victim, optimizer
):
    """Statistics of a norm among them, which the step that was cut off had moved already."""
    survivor, plan = 1 - victim, live_plan(model={"width": 8, "norm": True}, optimizer=optimizer)
    home = submit(stand, plan, PACE="0.1")
    await_step(home, 3, generation=0)
    kill_rank(home, victim)
    await_step(home, 4, generation=1)
    hurry(home)
    end = finish(stand)
    assert (end.exit_code, end.generation, end.restarts) == (0, 1, 1), end
    assert len(events_of(home, survivor, "started")) == 1, "it is the same process"
    assert steps_of(home, survivor) == list(range(1, STEPS + 1)), "each step once"
    healed = events_of(home, victim, "healed")[-1]
    assert (healed["source"], healed["had"]) == (survivor, -1)
    again = events_of(home, survivor, "redone")[-1]
    assert again["samples"] == [8 * (again["step"] - 1), 8 * again["step"]], "what the lost rank had taken"
    assert not events_of(home, victim, "resumed"), "nothing came from a checkpoint"
    found, wanted = last_model(stand.store, home, tmp_path / "found"), unbroken_model(make_gang(), plan)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
def test_three_replicas_survive_two_kills(stand, make_gang, tmp_path, seed):
    dice, plan = chance("live", seed), live_plan(3, steps=60)
    home = submit(stand, plan, PACE="0.1")
    reached = await_step(home, dice.randint(2, 5), generation=0)["step"]
    first, second = dice.sample(range(3), 2)
    kill_rank(home, first)
    await_step(home, reached + 2, generation=1)
    kill_rank(home, second)
    await_step(home, reached + 3, generation=2)
    hurry(home)
    end = finish(stand)
    assert (end.exit_code, end.generation) == (0, 2), end
    third = 3 - first - second
    assert steps_of(home, third) == list(range(1, plan.steps + 1)), "each step once"
    found, wanted = last_model(stand.store, home, tmp_path / "found"), unbroken_model(make_gang(), plan)
    for name, tensor in wanted.items():  # three numbers are not always added in the same order
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5, msg=name)


def process_of(home, rank: int, *, generation: int) -> int | None:
    """Of a rank that the keeper started in that generation, or a later one."""
    started = (each for each in Tail(home / "keeper-0.jsonl").events() if each["event"] == "rank_started")
    return next((e["pid"] for e in started if e["rank"] == rank and e["generation"] >= generation), None)


def kill_both(home):
    """In one breath: the second may be gone before the first is missed."""
    kill_rank(home, 0)
    kill_rank(home, 2)


def kill_another_who_waits(home):
    """The second one has lost its peer, and waits for who takes its place."""
    kill_rank(home, 0)
    poll(lambda: process_of(home, 0, generation=1))
    kill_rank(home, 2)


def kill_the_newcomer(home):
    """Whoever was started again dies again, before or after it has met the others."""
    kill_rank(home, 0)
    poll(lambda: process_of(home, 0, generation=1))
    poll(lambda: GangFolder(home).keeper(0).generation >= 1)
    kill_rank(home, 0)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("strike", "dead"),
    [
        (kill_another_who_waits, {0, 2}),
        pytest.param(kill_both, {0, 2}, marks=pytest.mark.slow),
        pytest.param(kill_the_newcomer, {0}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.long
def test_two_deaths_at_once_cost_the_living_no_step(stand, make_gang, tmp_path, strike, dead):
    plan = live_plan(3)
    home = submit(stand, plan, PACE="0.1")
    await_step(home, 3, generation=0)
    strike(home)
    await_step(home, 4, generation=1)
    hurry(home)
    end = finish(stand)
    assert end.exit_code == 0, end
    for rank in {0, 1, 2} - dead:
        assert len(events_of(home, rank, "started")) == 1, "it is the same process"
        assert steps_of(home, rank) == list(range(1, plan.steps + 1)), "each step once"
    assert not [each for rank in range(3) for each in events_of(home, rank, "resumed")], (
        "nothing came from a checkpoint"
    )
    found, wanted = last_model(stand.store, home, tmp_path / "found"), unbroken_model(make_gang(), plan)
    for name, tensor in wanted.items():  # three numbers are not always added in the same order
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.proves("live replicas of shards", oracle="an unbroken run of as many ranks, weights", gate="1e-5")
@pytest.mark.parametrize("dead", [(1,), (0, 1)], ids=["one shard", "a replica group"])
def test_replica_of_shards_heals_from_the_other(stand, make_gang, tmp_path, reached, dead):
    plan = live_plan(2, mesh=Mesh(dp_replicate=2, dp_shard=2), strategy="hsdp", micro_batch=2)
    home = submit(stand, plan, PACE="0.1")
    await_step(home, 3, generation=0)
    for rank in dead:
        kill_rank(home, rank)
    await_step(home, 4, generation=1)
    hurry(home)
    end = finish(stand)
    assert end.exit_code == 0, end
    for rank in {0, 1, 2, 3} - {*dead}:
        assert len(events_of(home, rank, "started")) == 1, "it is the same process"
        assert steps_of(home, rank) == list(range(1, plan.steps + 1)), "each step once"
    for rank in dead:
        assert events_of(home, rank, "healed")[-1]["source"] == rank + 2, "who held the same shard"
    found, wanted = last_model(stand.store, home, tmp_path / "found"), unbroken_model(make_gang(), plan)
    worst = weight_gap(found, wanted)
    assert worst <= 1e-5
    reached(worst)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_factors_of_a_replica_of_shards_come_from_who_keeps_the_same_ones(stand, make_gang, tmp_path):
    plan = live_plan(2, mesh=Mesh(dp_replicate=2, dp_shard=2), strategy="hsdp", micro_batch=2, optimizer=SOAP)
    home = submit(stand, plan, PACE="0.1")
    await_step(home, 3, generation=0)
    kill_rank(home, 1)
    await_step(home, 4, generation=1)
    hurry(home)
    end = finish(stand)
    assert end.exit_code == 0, end
    assert events_of(home, 1, "healed")[-1]["source"] == 3, "who held the same shard"
    assert not [each for rank in range(4) for each in events_of(home, rank, "resumed")]
    found, wanted = last_model(stand.store, home, tmp_path / "found"), unbroken_model(make_gang(), plan)
    assert weight_gap(found, wanted) <= 1e-5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_shard_that_no_one_holds_any_more_comes_from_the_checkpoint(stand, make_gang, tmp_path):
    mesh, policy = Mesh(dp_replicate=2, dp_shard=2), CheckpointPolicy(every=2, asynchronous=False)
    plan = replace(live_plan(2, mesh=mesh, strategy="hsdp", micro_batch=2), checkpoint=policy)
    home = submit(stand, plan, PACE="0.1")
    reached = await_step(home, 5, generation=0)["step"]
    kill_rank(home, 1)
    kill_rank(home, 3)
    await_step(home, reached + 1, generation=1)
    hurry(home)
    end = finish(stand)
    assert end.exit_code == 0, end
    for rank in (0, 2):
        assert len(events_of(home, rank, "started")) == 1, "it is the same process"
        assert events_of(home, rank, "resumed")[-1]["step"] >= 4
    found, wanted = last_model(stand.store, home, tmp_path / "found"), unbroken_model(make_gang(), plan)
    assert weight_gap(found, wanted) <= 1e-5
