"""Plans of the tests about memory: one small model of sequences, compared with one process and with itself."""

from dataclasses import replace
from functools import cache

from tests.module_files import load_module
from tests.oracles.one_process import train
from tests.train.gang import MESHES, ROOT, make_plan

from gangline.spec.plan import Memory, ProgramSpec

MODEL = {"width": 8, "layers": 3}
STEPS = 6


def plan_of(strategy="none", task="Sequences", *, memory=None, **changes):
    given = {
        "program": ProgramSpec(task=f"sequences:{task}"), "strategy": strategy, "mesh": MESHES[strategy],
        "model": MODEL,
        "steps": STEPS, "global_batch": 8, "micro_batch": 2, "memory": Memory(**(memory or {})),
    }  # fmt: skip
    return replace(make_plan(), **given | changes)


@cache
def sequences():
    """The module `sequences` of `tests/train/code`."""
    return load_module(ROOT / "tests" / "train" / "code" / "sequences.py", "sequences_task")


@cache
def one_process(steps=STEPS):
    """Weights and losses of a plain loop."""
    task = sequences().Sequences()
    return train(task, options=MODEL, data=task.build_data("train", {}), steps=steps, global_batch=8)
