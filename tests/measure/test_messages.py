"""What ranks send each other by the planner's arithmetic, against the collectives that a followed rank calls."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from tests.planner.cases import step_load_of
from tests.train.gang import ROOT
from tests.train.weighing import plan_of

from gangline.planner.cost.traffic import collectives
from gangline.planner.layouts.layout import Layout
from gangline.spec.codec import from_plain
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory, ProgramSpec
from gangline.spec.profile import ModelProfile, Trace

COUNT = """
import sys
from pathlib import Path
from torch.distributed._tools.fake_collectives import CollectiveOp, collective_ops, sync_ops
from gangline.spec.codec import canonical
from gangline.spec.plan import Plan
from gangline.measure import memory_run
from gangline.measure.model_profile import trace
from gangline.measure.model_traces import sample_of
from gangline.train.task import load_task

INPUTS = {"_allgather_base_": ("all_gather", 0), "_reduce_scatter_base_": ("reduce_scatter", 1),
          "reduce_scatter_tensor": ("reduce_scatter", 0), "alltoall_base_": ("all_to_all", 1),
          "all_to_all_single": ("all_to_all", 0)}

class Counting(memory_run.LiveMemory):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().partition("::")[2]
        if name in INPUTS and CollectiveOp.get_process_group(func, args).size() > 1:
            kind, place = INPUTS[name]
            sent.append([kind, args[place].nbytes])
        return super().__torch_dispatch__(func, types, args, kwargs)

memory_run.LiveMemory = Counting
sys.path.insert(0, ".")
task = load_task("model:ByteExperts")
plans, found = [Plan.from_json(Path(each).read_bytes()) for each in sys.argv[1:]], []
for plan in plans:
    sent = []
    memory_run.peak_of(task, plan, 0)
    found.append(sent)
options = plans[0].model
followed = trace(task, task.build_model(options), sample_of(task, options), "fp32")
print(canonical({"sent": found, "trace": followed}).decode())
"""
"""Prints every message of two steps of the first rank of each plan; its bytes are those of the whole."""
pytestmark = pytest.mark.slow
EXPERTS = 8
FULL = Memory(activation_checkpointing="full")
PLANS = {
    "shards": plan_of("fsdp", Mesh(dp_shard=2)),
    "experts on 2": plan_of("ep", Mesh(dp_shard=2, ep=2)),
    "experts on 2 of 4": plan_of("ep", Mesh(dp_shard=4, ep=2)),
    "computed again": plan_of("ep", Mesh(dp_shard=4, ep=4), memory=FULL),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The model's profile, and what each plan sent in a step, by kind."""
    folder = tmp_path_factory.mktemp("plans")
    files = [folder / f"plan-{number}.json" for number in range(len(PLANS))]
    for file, plan in zip(files, PLANS.values(), strict=True):
        file.write_bytes(replace(plan, program=ProgramSpec(task="model:ByteExperts")).to_json())
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *files], cwd=ROOT / "examples" / "moe", env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    trace = from_plain(Trace, found["trace"])
    parameters = sum(each.count * each.parameters for each in trace.units)
    profile = ModelProfile(parameters=parameters, experts=EXPERTS, traces=(trace,))
    return profile, dict(zip(PLANS, map(by_kind, found["sent"]), strict=True))


def by_kind(messages):
    sums = Counter()
    for kind, size in messages:
        sums[kind] += size / 2
    return sums


@pytest.mark.parametrize("name", PLANS)
def test_bytes_of_a_step_are_those_that_were_sent(seen, name):
    (profile, sent), plan = seen, PLANS[name]
    load = step_load_of(
        micro_batch=plan.micro_batch, micro_batches=1, precision=plan.precision,
        activation_checkpointing=plan.memory.activation_checkpointing,
    )  # fmt: skip
    reported = Counter()
    for each in collectives(profile, Layout(plan.strategy, plan.mesh), load):
        reported[each.kind] += each.count * each.size_bytes
    assert reported == pytest.approx(sent[name])
