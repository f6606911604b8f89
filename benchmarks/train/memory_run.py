"""The memory run on models that no rank of this machine could hold: peak of a rank, seconds and memory that it took.

    python benchmarks/train/memory_run.py [--rows "8B zero3 full;..."] [--json FILE]

A Llama-like model (32 blocks of width 4,096, or 64 of 5,120), one sequence of 4,096 tokens a rank, bf16. Each row is a
process of its own, told of a plan for a gang that does not exist. Beside each peak stands what the design expected; it
exits with 1 where a row has no peak.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = {
    "8B": {"layers": 32, "width": 4096, "hidden": 14336, "heads": 32, "kv_heads": 8, "vocabulary": 128256},
    "32B": {"layers": 64, "width": 5120, "hidden": 25600, "heads": 64, "kv_heads": 8, "vocabulary": 151936},
}
CONTEXT = 4096


@dataclass(frozen=True)
class Row:
    model: str
    strategy: str
    axes: dict[str, int]
    checkpointing: str
    expected: float | None = None
    """GB, by the design."""
    task: str = "Llama"


ROWS = {
    "8B zero3 full": Row("8B", "fsdp", {"dp_shard": 256}, "full", 9.0),
    "8B zero3 none": Row("8B", "fsdp", {"dp_shard": 256}, "none", 38.0),
    "8B zero2 full": Row("8B", "zero2", {"dp_shard": 256}, "full", 25.0),
    "8B 64x8 full": Row("8B", "tp", {"dp_shard": 64, "tp": 8}, "full"),
    "8B 64x8 full, whole logits": Row("8B", "tp", {"dp_shard": 64, "tp": 8}, "full", 8.9, task="WholeLogits"),
    "32B 256x8 full": Row("32B", "tp", {"dp_shard": 256, "tp": 8}, "full"),
    "32B 256x8 full, whole logits": Row("32B", "tp", {"dp_shard": 256, "tp": 8}, "full", 11.8, task="WholeLogits"),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default=";".join(ROWS))
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "memory_run.json")
    asked = parser.parse_args()
    found = {name: measure(ROWS[name]) for name in asked.rows.split(";")}
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2))
    return 0


def measure(row: Row) -> dict:
    """Prints and returns what one run came to."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        plan.write_bytes(plan_of(row).to_json())
        command = [sys.executable, "-W", "ignore", "-m", "gangline.measure.memory_run", str(plan)]
        start = time.monotonic()
        answer, resident = run(command, Path(folder) / "answer")
    if "peak_bytes" not in answer:
        raise SystemExit(f"{row}: {answer}")
    peak = answer["peak_bytes"] / 1e9
    took = {"peak_gb": round(peak, 2), "seconds": round(time.monotonic() - start, 1), "rss_mb": round(resident / 1e6)}
    found = took | {"expected_gb": row.expected}
    print(f"{row.model} {row.strategy} {row.axes} {row.checkpointing} {row.task}: {found}", flush=True)
    return found


def run(command: list[str], out: Path) -> tuple[dict, int]:
    """Answer and largest resident memory of a child, which works where the model of this benchmark lies."""
    pid = os.fork()
    if pid == 0:
        os.chdir(ROOT / "benchmarks" / "train" / "large")
        handle = os.open(out, os.O_CREAT | os.O_WRONLY)
        os.dup2(handle, 1)
        os.execve(command[0], command, os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"the memory run ended with {os.waitstatus_to_exitcode(status)}")
    return json.loads(out.read_text()), usage.ru_maxrss * 1024


def plan_of(row: Row):
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Memory, Plan, ProgramSpec

    mesh = Mesh(**row.axes)
    return Plan(
        run="bench-00000000-aaaaaa", project="bench", name=row.strategy, run_prefix="runs/bench/0/0",
        program=ProgramSpec(task=f"llama:{row.task}"), strategy=row.strategy, precision="bf16", device="cuda",
        mesh=mesh, model=SIZES[row.model] | {"context": CONTEXT}, steps=2, global_batch=mesh.data_parallel,
        micro_batch=1, memory=Memory(activation_checkpointing=row.checkpointing), checkpoint=CheckpointPolicy(every=2),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
