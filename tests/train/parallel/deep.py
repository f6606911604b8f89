"""Plans of the task in `tests/train/deep`, whose model has two ends and a row of blocks."""

from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location

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


def _load():
    spec = spec_from_file_location("deep_task", CODE / "model.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TASKS = _load()
