"""Plans of the task in `tests/train/deep`, whose model has two ends and a row of blocks."""

from dataclasses import replace

from tests.module_files import load_module
from tests.train.gang import ROOT, make_plan

from gangline.spec.plan import ProgramSpec

CODE = ROOT / "tests" / "train" / "deep"
MODEL = {"width": 8, "layers": 5}


def deep_plan(mesh, schedule="1f1b", **changes):
    """A plan under explicit degrees."""
    given = {
        "program": ProgramSpec(task="model:DeepPoints"), "model": MODEL, "global_batch": 8, "micro_batch": 2,
        "clip_norm": 3.0,
    }  # fmt: skip
    return replace(make_plan("none", **given | changes), strategy="explicit", mesh=mesh, pp_schedule=schedule)


TASKS = load_module(CODE / "model.py", "deep_task")
