"""The memory run against what torch's allocator saw of real ranks that trained two steps."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.train.gang import ROOT
from tests.train.weighing import plan_of

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory, Program

PLANS = {
    "ddp": plan_of("ddp", Mesh(dp_replicate=2), memory=Memory()),
    "zero1": plan_of("zero1", Mesh(dp_replicate=2), memory=Memory()),
    "fsdp": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory()),
    "fsdp x tp": plan_of("tp", Mesh(dp_shard=2, tp=2)),
    "fsdp, two micro-batches": plan_of("fsdp", Mesh(dp_shard=2), accumulation=2),
}
MORE = {
    "none": plan_of("none", Mesh()),
    "zero2": plan_of("zero2", Mesh(dp_shard=2), memory=Memory()),
    "fsdp on 4": plan_of("fsdp", Mesh(dp_shard=4), memory=Memory()),
    "hsdp": plan_of("hsdp", Mesh(dp_replicate=2, dp_shard=2)),
    "tp": plan_of("tp", Mesh(tp=2)),
    "copies of tp": plan_of("tp", Mesh(dp_replicate=2, tp=2)),
    "cp": plan_of("cp", Mesh(cp=2)),
    "fsdp in bf16": plan_of("fsdp", Mesh(dp_shard=2), precision="bf16"),
    "ddp in bf16": plan_of("ddp", Mesh(dp_replicate=2), precision="bf16"),
    "fsdp, full": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(activation_checkpointing="full")),
    "fsdp, selective": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(activation_checkpointing="selective")),
    "ddp, chunks": plan_of("ddp", Mesh(dp_replicate=2), memory=Memory(loss_chunks=4)),
}
"""Every other strategy and option: `slow`."""
WITHIN = 0.01


def track(folder, *plans):
    """What the memory run prints, by plan; examples/bytegpt is where its task is."""
    files = [folder / f"plan-{number}.json" for number in range(len(plans))]
    for file, plan in zip(files, plans, strict=True):
        file.write_bytes(replace(plan, program=Program(task="model:ByteGPT")).to_json())
    done = subprocess.run(
        [sys.executable, "-m", "gangline.train.estimate.track", *files], cwd=ROOT / "examples" / "bytegpt",
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    found = track(tmp_path_factory.mktemp("plans"), *PLANS.values())
    return dict(zip(PLANS, found, strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_the_peak_is_the_allocators(peaks, weight, name):
    assert peaks[name]["peak_bytes"] / weight(PLANS[name])["peak"] == pytest.approx(1.0, abs=WITHIN)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_the_peak_is_the_allocators_under_every_option(tmp_path, weight, name):
    [found] = track(tmp_path, MORE[name])
    assert found["peak_bytes"] / weight(MORE[name])["peak"] == pytest.approx(1.0, abs=WITHIN)


def test_what_it_does_not_follow_is_said(tmp_path):
    """A line for each plan, in order, whatever becomes of the one before."""
    refused = {
        "wanted no stages, found": plan_of("pp", Mesh(pp=2)),
        "wanted experts whole, found": plan_of("ep", Mesh(dp_shard=2, ep=2)),
        'wanted train.memory.offload "none"': plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(offload="cpu")),
        "train.mesh.tp = 3: ": plan_of("tp", Mesh(tp=3)),
    }
    found = track(tmp_path, *refused.values())
    assert all("peak_bytes" not in each for each in found)
    for each, why in zip(found, refused, strict=True):
        assert each["unknown"].startswith(why)
