"""Plans of the tasks in `tests/train/words`, and what one process makes of them."""

from dataclasses import replace
from functools import cache

from tests.module_files import load_module
from tests.oracles.one_process import train
from tests.train.gang import ROOT, make_plan
from tests.train.trained import gaps, left_by

from gangline.spec.plan import ProgramSpec

CODE = ROOT / "tests" / "train" / "words"
STEPS = 6
CLIP = 1.0


def words_plan(mesh, task="CutAll", *, model=None, **changes):
    given = {
        "program": ProgramSpec(task=f"model:{task}"), "model": model or {}, "steps": STEPS, "global_batch": 8,
        "micro_batch": 2, "clip_norm": CLIP,
    }  # fmt: skip
    return replace(make_plan("none", **given | changes), strategy="explicit", mesh=mesh)


TASKS = load_module(CODE / "model.py", "words_task")


@cache
def one_process(*, steps=STEPS, **model):
    """Weights and losses of a plain loop."""
    task = TASKS.Cut()
    data = task.build_data("train", {"model": model})
    return train(task, options=model, data=data, steps=steps, global_batch=8, clip_norm=CLIP)


def losses_of(gang):
    return [loss for _, loss in gang.result().jobs[0].losses]


def finish(gang, plan):
    """Run `plan` to its end without a word of warning."""
    assert gang.run(plan) == [0] * plan.world_size, "\n".join(gang.log(rank)[-3000:] for rank in range(plan.world_size))
    assert "arning" not in gang.log()
    return gang


def gap(gang, wanted):
    """Largest difference of the stored weights to `wanted`; losses are as near, relative to theirs."""
    weights, losses = gaps(left_by(gang), wanted)
    assert losses <= 1e-5
    return weights
