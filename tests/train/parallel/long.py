"""Plans of the tasks in `tests/train/long`, whose samples are sequences, and what one process makes of them."""

from dataclasses import replace
from functools import cache

import torch
from tests.module_files import load_module
from tests.oracles.one_process import train
from tests.train.gang import ROOT, make_plan
from tests.train.trained import gaps, trained

from gangline.spec.plan import ProgramSpec

CODE = ROOT / "tests" / "train" / "long"
MODEL = {"width": 16, "heads": 4, "layers": 2, "length": 16}
STEPS = 6
CLIP = 1.0


def long_plan(mesh, task="Long", *, model=None, **changes):
    """A plan under explicit degrees."""
    given = {
        "program": ProgramSpec(task=f"model:{task}"), "model": MODEL | (model or {}), "steps": STEPS, "global_batch": 8,
        "micro_batch": 2, "clip_norm": CLIP,
    }  # fmt: skip
    return replace(make_plan("none", **given | changes), strategy="explicit", mesh=mesh)


TASKS = load_module(CODE / "model.py", "long_task")


SGD = {"optimizer": {"elementwise": {"rule": "sgd", "lr": 0.1}}, "clip_norm": None}
"""Fields of a plan that has no step forget how large its gradients were, as AdamW and clipping do."""


@cache
def one_process_of_sgd(task):
    """As `one_process`, with the optimizer of `SGD`."""
    source = getattr(TASKS, task)()
    data = source.build_data("train", {"model": MODEL})
    return train(source, options=MODEL, data=data, steps=STEPS, global_batch=8, lr=0.1, optimizer=torch.optim.SGD)


@cache
def one_process(task="Long", global_batch=8, steps=STEPS, **model):
    """Weights and losses of a plain loop."""
    options, source = MODEL | model, getattr(TASKS, task)()
    data = source.build_data("train", {"model": options})
    return train(source, options=options, data=data, steps=steps, global_batch=global_batch, clip_norm=CLIP)


def require_parity(gang, plan, wanted, *, gate):
    """Run `plan`; largest difference of its weights and losses to `wanted`, which is at most `gate`."""
    found = gaps(trained(gang, plan), wanted)
    assert max(found) <= gate, found
    return max(found)
