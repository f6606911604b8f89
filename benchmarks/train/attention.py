"""Both passes of a GPT on one CPU thread, forecast and measured, as its sequences grow and all else stays.

    python benchmarks/train/attention.py [--sequences 64,256,1024] [--width 256] [--layers 2] [--json FILE]

The profile, the rates and the formula are those of the plan stage. Measured are the seconds that the thread was given,
the least of several passes, since whatever else runs here only adds to caches' misses. Beside the forecast stands what
it is where attention counts as products do, masked half included.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[2]
SAMPLES, PASSES = 2, 5
TASK = "model:ByteGPT"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", default="64,256,1024")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "attention.json")
    asked = parser.parse_args()
    os.chdir(ROOT / "examples" / "bytegpt")
    sys.path.insert(0, str(Path.cwd()))
    rows = [judge({"layers": asked.layers, "width": asked.width, "context": int(each)})
            for each in asked.sequences.split(",")]  # fmt: skip
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"load": os.getloadavg()[0], "samples": SAMPLES, "rows": rows}, indent=2))
    return 0


def judge(model: dict) -> dict:
    """Prints and returns what one length came to."""
    from gangline.measure import model_facts
    from gangline.measure.device_bench import BenchRequest
    from gangline.measure.device_rates import measure
    from gangline.spec.codec import from_plain
    from gangline.spec.profile import ModelProfile, Trace

    found = model_facts.model(TASK, model)
    trace = next(from_plain(Trace, each) for each in found["traces"] if each["precision"] == "fp32")
    profile = ModelProfile(parameters=found["parameters"], tensors=found["tensors"], blocks=found["blocks"])
    rates = measure(BenchRequest(
        device="cpu", precision="fp32", ranks=1, cores=1,
        matrices=[[each.rows, each.inner, each.columns] for each in trace.matrices[:12]],
        attention=[[each.queries, each.keys, each.width, int(each.is_causal)] for each in trace.attention],
    ))  # fmt: skip
    reported = forecast(replace(profile, traces=(trace,)), rates)
    before = forecast(replace(profile, traces=(replace(trace, attention=()),)), rates)
    seconds = measured(model)
    [attended] = rates.attention
    row = {
        "sequence": model["context"], "measured": seconds, "forecast": reported, "as products": before,
        "attention_flops_per_second": attended.flops_per_second,
        "share": sum(each.count * each.counted_flops for each in trace.attention)
        / trace.samples / trace.flops_per_sample,
    }  # fmt: skip
    print(
        f"sequence {row['sequence']:5}: measured {1e3 * seconds:7.1f} ms, forecast {1e3 * reported:7.1f} ms "
        f"({reported / seconds:.2f}), as products {1e3 * before:7.1f} ms ({before / seconds:.2f}); attention has "
        f"{row['share']:.0%} of what is counted, {attended.flops_per_second / 1e9:.0f} GFLOP/s; "
        f"load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return row


def forecast(profile, rates) -> float:
    """Seconds of both passes of one micro-batch, by formula."""
    from gangline.planner.forecast import formula_of
    from gangline.planner.layouts.layout import Layout
    from gangline.planner.pool import open_pool
    from gangline.planner.problem import PlanProblem
    from gangline.planner.settings import Setting
    from gangline.spec.config.line import Line, ProjectTable, TrainTable
    from gangline.spec.config.site import Site
    from gangline.spec.devices import Inventory
    from gangline.spec.mesh import Mesh

    line = Line(project=ProjectTable(name="p", task=TASK), train=TrainTable(steps=10, global_batch=SAMPLES))
    pool = open_pool(Site(), Inventory(cores=1, memory_bytes=10**10, origin="this machine"))
    problem = PlanProblem(line=line, pool=pool, profile=profile, rates=rates)
    how = Setting(micro_batch=SAMPLES, precision="fp32")
    terms = formula_of(problem, Layout("none", Mesh()), how).terms
    return next(term.seconds for term in terms if term.part == "compute")


def measured(model: dict) -> float:
    import torch
    from model import ByteGPT
    from torch.utils.data import default_collate

    from gangline.measure.model_traces import sample_of

    task = ByteGPT()
    net, batch = task.build_model(dict(model)), default_collate([sample_of(task, model)] * SAMPLES)
    inputs = {"tokens": batch["tokens"]}
    torch.manual_seed(0)
    found = []
    for _ in range(PASSES):
        start = time.thread_time()
        task.loss(net(**inputs), batch).total.backward()
        found.append(time.thread_time() - start)
        net.zero_grad(set_to_none=True)
    return min(found[1:])


if __name__ == "__main__":
    sys.exit(main())
