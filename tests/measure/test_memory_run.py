"""The memory run against what torch's allocator saw of real ranks that trained two steps."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from statistics import fmean

import pytest
from tests.train.gang import MESHES, ROOT
from tests.train.weighing import plan_of

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory, ProgramSpec
from gangline.train.runtime.torch_compat import torch_release

pytestmark = pytest.mark.long
TWO, FULL = Mesh(pp=2), Memory(activation_checkpointing="full")
WIDE = {"layers": 2, "width": 256, "context": 8}
"""Its peak is in the optimizer's step."""


def by_rule(rule, mesh=None, strategy="ddp", *, every=1, **changes):
    """`every` step refreshes roots and bases."""
    table = {"rule": rule, "exclude": ["token", "position", "head", "norm"]}
    refreshes = {} if rule == "muon" else {"refresh_every": every}
    return plan_of(strategy, mesh or Mesh(dp_replicate=2), optimizer=table | refreshes, **changes)


EXPERTS = {"task": "weighed_experts:WeighedExperts"}
PLANS = {
    "ddp": plan_of("ddp", Mesh(dp_replicate=2), memory=Memory()),
    "zero1": plan_of("zero1", Mesh(dp_replicate=2), memory=Memory()),
    "fsdp": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory()),
    "tp": plan_of("tp", Mesh(tp=2)),
    "stages": plan_of("pp", TWO, accumulation=4),
    "muon": by_rule("muon", strategy="zero1"),
    "soap": by_rule("soap", model=WIDE),
    "muon of shards": by_rule("muon", Mesh(dp_shard=2), "fsdp"),
}
MORE = {
    **{name: plan_of(name, mesh, memory=Memory()) for name, mesh in MESHES.items() if name not in PLANS},
    "fsdp on 4": plan_of("fsdp", Mesh(dp_shard=4), memory=Memory()),
    "fsdp x tp": plan_of("tp", Mesh(dp_shard=2, tp=2)),
    "copies of tp": plan_of("tp", Mesh(dp_replicate=2, tp=2)),
    "cp": plan_of("cp", Mesh(cp=2)),
    "fsdp in bf16": plan_of("fsdp", Mesh(dp_shard=2), precision="bf16"),
    "ddp in bf16": plan_of("ddp", Mesh(dp_replicate=2), precision="bf16"),
    "fsdp, full": plan_of("fsdp", Mesh(dp_shard=2), memory=FULL),
    "fsdp, selective": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(activation_checkpointing="selective")),
    "ddp, chunks": plan_of("ddp", Mesh(dp_replicate=2), memory=Memory(loss_chunks=4)),
    "fsdp, two micro-batches": plan_of("fsdp", Mesh(dp_shard=2), accumulation=2),
    "ddp, moments in files": plan_of("ddp", Mesh(dp_replicate=2), memory=Memory(offload="optimizer_nvme")),
    "fsdp, moments in files": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(offload="optimizer_nvme")),
    "zero1, moments in files": plan_of("zero1", Mesh(dp_replicate=2), memory=Memory(offload="optimizer_nvme")),
    "fsdp, shards on the host": plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(offload="cpu")),
    "muon, wide": by_rule("muon", model=WIDE),
    "soap alone": by_rule("soap", Mesh(), "none"),
    "soap on 4": by_rule("soap", Mesh(dp_replicate=4)),
    "shampoo": by_rule("shampoo", model=WIDE),
    "muon of shards, wide": by_rule("muon", Mesh(dp_shard=2), "fsdp", model=WIDE),
    "muon of shards on 4": by_rule("muon", Mesh(dp_shard=4), "fsdp", model=WIDE),
    "muon of shards in bf16": by_rule("muon", Mesh(dp_shard=2), "fsdp", model=WIDE, precision="bf16"),
    "muon of shards that are copied": by_rule("muon", Mesh(dp_replicate=2, dp_shard=2), "hsdp", model=WIDE),
    "soap of shards": by_rule("soap", Mesh(dp_shard=2), "fsdp", model=WIDE),
    "soap of shards, zero2": by_rule("soap", Mesh(dp_shard=2), "zero2", model=WIDE),
    "shampoo of shards": by_rule("shampoo", Mesh(dp_shard=2), "fsdp", model=WIDE),
    "gpipe": plan_of("pp", TWO, accumulation=4, pp_schedule="gpipe"),
    "interleaved": plan_of("pp", TWO, accumulation=4, pp_schedule="interleaved_1f1b"),
    "looped bfs": plan_of("pp", TWO, accumulation=4, pp_schedule="looped_bfs"),
    "interleaved zero bubble": plan_of("pp", TWO, accumulation=4, pp_schedule="interleaved_zero_bubble"),
    "zbv": plan_of("pp", TWO, accumulation=4, pp_schedule="zbv"),
    "dualpipev": plan_of("pp", TWO, accumulation=4, pp_schedule="dualpipev"),
    "four stages": plan_of("pp", Mesh(pp=4), accumulation=6),
    "stages of shards": plan_of("pp", Mesh(pp=2, dp_shard=2), accumulation=3),
    "stages of shards in bf16": plan_of("pp", Mesh(pp=2, dp_shard=2), accumulation=3, precision="bf16"),
    "stages of copies": plan_of("pp", Mesh(pp=2, dp_replicate=2), accumulation=3),
    "stages of tp": plan_of("pp", Mesh(pp=2, tp=2), accumulation=3),
    "stages, full": plan_of("pp", TWO, accumulation=4, memory=FULL),
    "experts on 2": plan_of("ep", Mesh(dp_shard=2, ep=2), **EXPERTS),
    "experts on 2 of 4": plan_of("ep", Mesh(dp_shard=4, ep=2), **EXPERTS),
    "experts on 4": plan_of("ep", Mesh(dp_shard=4, ep=4), **EXPERTS),
    "experts, full": plan_of("ep", Mesh(dp_shard=2, ep=2), memory=FULL, **EXPERTS),
}
"""Every other strategy and option: `slow`."""
TENTH = by_rule("soap", model=WIDE, every=10)
EAGER, COMPILED = plan_of("none", Mesh()), plan_of("none", Mesh(), compile=True)
OVERLAPS = plan_of("ddp", Mesh(dp_replicate=2), optimizer={"rule": "muon", "overlap": "forward"})
REFUSED = {
    'wanted train.memory.offload "none"': plan_of("fsdp", Mesh(dp_shard=2), memory=Memory(offload="activations")),
    "a memory run does not simulate updates of whole matrices (optimizer.rule 'muon') where ranks hold parts": by_rule(
        "muon", Mesh(tp=2), "tp"
    ),
    "a memory run does not simulate updates of whole matrices (optimizer.rule 'muon') with shards on the": by_rule(
        "muon", Mesh(dp_shard=2), "fsdp", memory=Memory(offload="cpu")
    ),
    "a memory run does not simulate updates of whole matrices (optimizer.rule 'soap') with their state in": by_rule(
        "soap", memory=Memory(offload="optimizer_nvme")
    ),
    "a memory run does not simulate updates of whole matrices (optimizer.rule 'muon') with overlap": OVERLAPS,
    "a pipeline of 5 stages wants 5 blocks": plan_of("pp", Mesh(pp=5), accumulation=5),
    "train.mesh.tp = 3: ": plan_of("tp", Mesh(tp=3)),
    '"ep" distributes experts over ranks': plan_of("ep", Mesh(dp_shard=2, ep=2)),
}
"""By what is said of them."""
STAGES = pytest.mark.skipif(torch_release() < (2, 13), reason="pipelines are refused before torch 2.13")
WITHIN = 0.01
UNDER, OVER = 0.02, 0.04
"""Of a rank with stages: 1.8 % short with shards in bf16, else 0.1 %; up to 3.4 % over on the last one."""


def track(folder, *plans):
    """What the memory run prints, by plan; all of one task, which its example has."""
    [is_experts] = {"experts" in plan.program.task for plan in plans}
    example, task = ("moe", "model:ByteExperts") if is_experts else ("bytegpt", "model:ByteGPT")
    files = [folder / f"plan-{number}.json" for number in range(len(plans))]
    for file, plan in zip(files, plans, strict=True):
        file.write_bytes(replace(plan, program=ProgramSpec(task=task)).to_json())
    done = subprocess.run(
        [sys.executable, "-m", "gangline.measure.memory_run", *files], cwd=ROOT / "examples" / example,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def shares(found, weighed, plan):
    """Of each stage: what was predicted to what its ranks had on average; experts of some get more rows than others."""
    stages, each = plan.mesh.pp, plan.world_size // plan.mesh.pp
    seen = [fmean(weighed["peaks"][stage * each : (stage + 1) * each]) for stage in range(stages)]
    reported = found.get("stages", [found["peak_bytes"]])
    assert found["peak_bytes"] == max(reported)
    return [one / other for one, other in zip(reported, seen, strict=True)]


def require_close(reported, weight, plan):
    """Where a report of a release is lost, the peak of a rank may come out too small: it trains once more."""
    under, over = (WITHIN, WITHIN) if plan.mesh.pp == 1 else (UNDER, OVER)
    found = shares(reported, weight(plan), plan)
    if max(found) > 1 + over:
        found = shares(reported, weight(plan, again=True), plan)
    assert min(found) >= 1 - under, found
    assert max(found) <= 1 + over, found


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """What it says of each plan, by digest: a line each, in order, whatever becomes of the one before."""
    plans = [*PLANS.values(), *REFUSED.values(), EAGER, COMPILED, TENTH]
    return dict(zip((each.digest for each in plans), track(tmp_path_factory.mktemp("plans"), *plans), strict=True))


@pytest.mark.parametrize("name", [*(n for n in PLANS if n != "stages"), pytest.param("stages", marks=STAGES)])
def test_the_peak_is_the_allocators(reported, weight, name):
    require_close(reported[PLANS[name].digest], weight, PLANS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_the_peak_is_the_allocators_under_every_option(tmp_path, weight, name):
    [found] = track(tmp_path, MORE[name])
    require_close(found, weight, MORE[name])


@pytest.mark.parametrize("why", [pytest.param(each, marks=[STAGES] if "stages" in each else []) for each in REFUSED])
def test_what_it_does_not_follow_is_said(reported, why):
    found = reported[REFUSED[why].digest]
    assert "peak_bytes" not in found
    assert found["unknown"].startswith(why)


def test_shards_that_wait_on_a_host_are_counted_there(tmp_path):
    """The weights and moments of a shard, 12 of its 16 bytes a parameter, are gone from the device's peak."""
    stays, waits, bf16 = (
        plan_of("zero2", Mesh(dp_shard=2), memory=memory, device="cuda", precision=precision)
        for memory, precision in ((Memory(), "fp32"), (Memory(offload="cpu"), "fp32"), (Memory(offload="cpu"), "bf16"))
    )
    found = track(tmp_path, stays, waits, bf16)
    assert "host_bytes" not in found[0]
    assert found[0]["peak_bytes"] - found[1]["peak_bytes"] == pytest.approx(12 / 16 * found[1]["host_bytes"], rel=1e-3)
    assert found[2]["host_bytes"] == found[1]["host_bytes"]
    assert found[2]["peak_bytes"] < found[1]["peak_bytes"]


def test_what_a_peak_takes_for_granted_is_said(reported):
    assert "assumes" not in reported[EAGER.digest]
    assert reported[PLANS["soap"].digest]["assumes"] == "owners of matrices keep what the first one does"
    assert reported[COMPILED.digest]["assumes"] == "blocks are not compiled"
    assert reported[COMPILED.digest]["peak_bytes"] == reported[EAGER.digest]["peak_bytes"]


def test_the_peak_is_that_of_a_step_that_refreshes(reported):
    assert reported[TENTH.digest]["peak_bytes"] == reported[PLANS["soap"].digest]["peak_bytes"]
