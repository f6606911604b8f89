"""What ranks of a small model weigh: tensors by count, the peak by torch's allocator; a gang for each question."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.train.gang import ROOT, Gang, make_plan, sample_text

from gangline.keeper.ranks.rank_processes import WarmParent
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Plan, ProgramSpec

MODEL = {"layers": 4, "width": 128, "context": 32}
MICRO_BATCH = 4
CODE = ROOT / "benchmarks" / "train" / "weighed"


def plan_of(strategy: str, mesh: Mesh, *, accumulation: int = 1, task: str = "weighed:Weighed", **changes) -> Plan:
    """A plan of two steps with equal micro-batches."""
    made = make_plan(
        "ddp", program=ProgramSpec(task=task), model=MODEL, steps=2, micro_batch=MICRO_BATCH,
        global_batch=MICRO_BATCH * accumulation * mesh.data_parallel,
    )  # fmt: skip
    return replace(made, strategy=strategy, mesh=mesh, **changes)


def weigh(home: Path, warm: WarmParent, plan: Plan) -> dict[str, Any]:
    """Mean of the ranks of `plan`, and `peaks` of each; `state` is all that is there when the optimizer steps."""
    gang = Gang(home, warm, shutil.copytree(CODE, home / "code"))
    for example, name in (("bytegpt", "bytegpt.py"), ("moe", "experts.py")):
        shutil.copy(ROOT / "examples" / example / "model.py", gang.code / name)
    plan = replace(plan, data=gang.put_text(sample_text(1 << 15)))
    assert gang.run(plan) == [0] * plan.world_size, gang.log()
    each = [json.loads((home / f"weight-{rank}.json").read_text()) for rank in range(plan.world_size)]
    means = {key: sum(one[key] for one in each) / len(each) for key in each[0]}
    state = means["parameters"] + means["gradients"] + means["optimizer"]
    return means | {"state": state, "peaks": [one["peak"] for one in each]}


def weigher(warm: WarmParent, new_folder: Callable[[], Path]) -> Callable[..., dict[str, Any]]:
    """`weigh`, which trains each plan once; with `again` once more, and each rank's greater peak counts."""
    known: dict[str, dict[str, Any]] = {}

    def weight(plan: Plan, *, again: bool = False) -> dict[str, Any]:
        before = known.get(plan.digest)
        if before is None or again:
            found = known[plan.digest] = weigh(new_folder(), warm, plan)
            if before is not None:
                found["peaks"] = [max(pair) for pair in zip(before["peaks"], found["peaks"], strict=True)]
        return known[plan.digest]

    return weight
