"""T7: ranks join and leave at seeded steps; every sample is taken once an epoch, and the state goes over whole."""

import json
from itertools import pairwise

import pytest
import torch
from tests.faults.t.ranks import (
    KEY,
    NUM_SAMPLES,
    await_step,
    chance,
    finish,
    hurry,
    recorded_plan,
    samples_by_step,
    submit,
    wanted_samples,
)
from tests.oracles.one_process import train
from tests.train.gang import load_tiny

from gangline.checkpoint.format.export import export_model
from gangline.drill.history import DrillHistory
from gangline.keeper.ipc.requests import RESIZE_FILE
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Size

pytestmark = [pytest.mark.row("T7", full="100 schedules"), pytest.mark.timeout(300), pytest.mark.long]
BATCH, STEPS, TURN = 6, 30, 5
MODEL = {"width": 8, "layers": 2}


def schedule(seed):
    """Numbers of ranks, and how many steps each lasts; seed 0 is the one that has a name."""
    if seed == 0:
        return [1, 2, 3, 1], [TURN] * 3
    dice = chance("T7", seed)
    worlds = [dice.choice((1, 2, 3))]
    while len(worlds) < 4:
        worlds.append(dice.choice([each for each in (1, 2, 3) if each != worlds[-1]]))
    return worlds, [dice.randint(1, TURN + 2) for _ in range(3)]


def size(world, axis):
    mesh, strategy = Mesh(**{axis: world}), {"dp_shard": "fsdp", "dp_replicate": "ddp"}[axis]
    return Size(name=str(world), strategy=strategy if world > 1 else "none", mesh=mesh, micro_batch=BATCH)


def elastic_plan(first, axis):
    own, *others = sorted((size(world, axis) for world in (1, 2, 3)), key=lambda each: each.mesh.world_size != first)
    return recorded_plan(
        mesh=own.mesh, strategy=own.strategy, micro_batch=BATCH, global_batch=BATCH, steps=STEPS, model=MODEL,
        sizes=tuple(others), every=10,
    )  # fmt: skip


def each_seed():
    full = pytest.mark.slow
    return [0, *(pytest.param(seed, marks=full) for seed in range(1, 100))]


@pytest.mark.parametrize("number", each_seed())
def test_every_sample_is_taken_once_an_epoch_whatever_the_ranks(stand, seed, number):
    worlds, turns = schedule(seed + number)
    axis = ("dp_shard", "dp_replicate")[(seed + number) % 2]
    home = submit(stand, elastic_plan(worlds[0], axis), PACE="0.1")
    step, asked = 0, []
    for generation, (turn, world) in enumerate(zip(turns, worlds[1:], strict=True)):
        step = await_step(home, min(step + turn, STEPS - 6), generation=generation)["step"]
        asked.append(step)
        (home / ".wish").write_text(json.dumps({"ranks": world}))
        (home / ".wish").rename(home / RESIZE_FILE)
        await_step(home, step + 1, generation=generation + 1)
    hurry(home)
    end = finish(stand)
    assert (end.exit_code, end.restarts, end.generation) == (0, 0, 3), end

    resumed = [
        each["step"] for each in DrillHistory.read(home).ranks if each["event"] == "resumed" and not each["rank"]
    ]
    assert all(found >= wished for found, wished in zip(resumed, asked, strict=True)), "it is saved before it is left"

    taken = samples_by_step(home, global_batch=BATCH)
    wanted = wanted_samples(STEPS, global_batch=BATCH)
    assert taken == wanted, "some rank took other samples than one process takes"
    epochs = [sample for step in taken for sample in step]
    for first in range(0, len(epochs) - NUM_SAMPLES + 1, NUM_SAMPLES):
        assert sorted(epochs[first : first + NUM_SAMPLES]) == list(range(NUM_SAMPLES))

    reported = [each for each in DrillHistory.read(home).keepers if each["event"] == "resized"]
    assert [(each["before"], each["after"]) for each in reported] == list(pairwise(worlds))
    reseeded = [
        each["generation"] for each in DrillHistory.read(home).ranks if each["event"] == "reseeded" and not each["rank"]
    ]
    assert reseeded == [1, 2, 3], "generators of another number of ranks are not taken over in silence"
    assert_weights_of_one_process(stand, home)


def assert_weights_of_one_process(stand, home):
    tasks = load_tiny()
    wanted, _ = train(tasks.Tiny(), options=MODEL, data=tasks.Points(0, NUM_SAMPLES), steps=STEPS, global_batch=BATCH)
    checkpoint = json.loads((home / "out" / "result.json").read_bytes())["checkpoint"]
    found = stored_model(stand, home, checkpoint)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0)


def stored_model(stand, home, checkpoint):
    from safetensors.torch import load_file

    files = export_model(stand.store, checkpoint, KEY, home / "exported", metadata={})
    return {name: each for file in files if file.suffix == ".safetensors" for name, each in load_file(file).items()}
