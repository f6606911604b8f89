"""Statistics that forward passes leave behind: the mean over all ranks, whatever the strategy and whoever saves."""

import pytest
import torch
from tests.train.gang import load_tiny, stored_model, tiny_plan
from torch.utils.data import default_collate

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, ProgramSpec, Recovery
from gangline.train.loop.sample_order import SampleOrder, rank_spans
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.runtime.initialization import Initializer

STEPS, BATCH = 4, 12
MODEL = {"width": 8, "layers": 2, "norm": True}
TASKS = load_tiny()
COUNTED = "norm.num_batches_tracked"
TWO, THREE = Mesh(dp_replicate=2), Mesh(dp_replicate=3)


def slowly(ranks, steps=STEPS):
    """One process in which every rank's share is seen with the buffers that all began the step with."""
    task, data = TASKS.Tiny(), TASKS.Points(0, 37)
    first = Initializer.build(lambda: task.build_model(MODEL), seed=1)
    for name, unit in [*find_blocks(first.model, task.hints), ("", first.model)]:
        first.unit(unit, name, torch.device("cpu"))
    model, order = first.model, SampleOrder(num_samples=len(data), seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        before = {name: each.clone() for name, each in model.named_buffers()}
        after, total, weight = [], 0.0, 0.0
        for start, stop in rank_spans(BATCH, ranks=ranks):
            batch = default_collate([data[order.sample(step * BATCH + place)] for place in range(start, stop)])
            loss = task.loss(model(batch["x"]), batch)
            total, weight = total + loss.total, weight + loss.weight
            after.append({name: each.clone() for name, each in model.named_buffers()})
            for name, each in model.named_buffers():
                each.data = before[name].clone()
        (total / weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        for name, each in model.named_buffers():
            mean = torch.stack([found[name].double() for found in after]).mean(0)
            each.data = mean.round().to(each.dtype) if name == COUNTED else mean.to(each.dtype)
    return model.state_dict()


def plan_of(strategy, mesh, **changes):
    ranks = mesh.data_parallel
    given = {"model": MODEL, "steps": STEPS, "global_batch": BATCH, "micro_batch": BATCH // ranks, "clip_norm": None}
    return tiny_plan(strategy, mesh=mesh, checkpoint=CheckpointPolicy(every=2, asynchronous=False), **given | changes)


@pytest.mark.parametrize(
    ("strategy", "mesh"),
    [
        ("ddp", THREE), ("fsdp", Mesh(dp_shard=2)), pytest.param("ddp", TWO, marks=pytest.mark.slow),
        pytest.param("hsdp", Mesh(dp_replicate=2, dp_shard=2), marks=pytest.mark.slow),
    ],
    ids=["ddp-3", "fsdp-2", "ddp-2", "hsdp-2x2"],
)  # fmt: skip
def test_statistics_are_the_mean_over_all_ranks(make_gang, strategy, mesh):
    gang, wanted = make_gang(), slowly(mesh.data_parallel)
    assert set(gang.run(plan_of(strategy, mesh))) == {0}, gang.log()
    found = stored_model(gang, gang.result().checkpoint)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0, msg=lambda text, n=name: f"{n}: {text}")
    assert torch.equal(found["norm.fixed"], wanted["norm.fixed"]), "what nobody changes keeps its bits"


@pytest.mark.slow
def test_a_resumed_training_has_the_statistics_of_an_unbroken_one(make_gang):
    whole, broken = make_gang(), make_gang()
    plan = plan_of("ddp", TWO)
    assert set(whole.run(plan)) == {0}, whole.log()
    assert set(broken.run(plan_of("ddp", TWO, stop_at=2))) == {0}, broken.log()
    assert set(broken.run(plan)) == {0}, broken.log()
    found, wanted = (stored_model(gang, gang.result().checkpoint) for gang in (broken, whole))
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_step_that_is_skipped_leaves_none_behind(make_gang, step):
    """What is not a number would stay in them for ever."""
    gang = make_gang()
    (gang.code / "poisoned.py").write_text(POISON)
    program = ProgramSpec(task="poisoned:Poisoned")
    plan = plan_of("ddp", TWO, recovery=Recovery(non_finite="skip"), program=program)
    assert gang.run(plan, POISON=str(step)) == [0, 0], gang.log()
    assert [each["step"] for each in gang.events(event="non_finite")] == [step]
    found = stored_model(gang, gang.result().checkpoint)
    assert all(bool(each.isfinite().all()) for each in found.values()), found
    assert int(found[COUNTED]) == STEPS - 1


POISON = """
import os

from model import Tiny


class Poisoned(Tiny):
    def build_model(self, options):
        model, calls = super().build_model(options), []

        def poison(module, inputs):
            calls.append(module.training)
            if sum(calls) == int(os.environ["POISON"]) and module.training and os.environ["RANK"] == "1":
                return inputs[0] * float("nan")

        model.norm.register_forward_pre_hook(poison)
        return model
"""
