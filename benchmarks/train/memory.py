"""Memory of a rank under each strategy and option: bytes of its tensors to those of DDP, and the allocator's peak.

    python benchmarks/train/memory.py [--ranks 2,4] [--layers 6] [--width 256] [--rows ddp,fsdp] [--json FILE]

Real gloo ranks train a byte-level GPT for two steps. State is what is there when the optimizer steps: parameters,
gradients, AdamW's moments. The peak is torch's own: every allocation and release since before the model was made.
Bound: the state of zero1 is 1/2 + 1/(2 N) of DDP's, that of zero2 and fsdp 1/N, within 1 %.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the ranks are those of the tests
CONTEXT = 128
MICRO_BATCH = 4
TOLERANCE = 0.01


@dataclass(frozen=True)
class Row:
    strategy: str
    sharded: bool = False
    precision: str = "fp32"
    memory: dict = field(default_factory=dict)


ROWS = {
    "ddp": Row("ddp"),
    "zero1": Row("zero1"),
    "zero2": Row("zero2", sharded=True),
    "fsdp": Row("fsdp", sharded=True),
    "fsdp bf16": Row("fsdp", sharded=True, precision="bf16"),
    "ddp full": Row("ddp", memory={"activation_checkpointing": "full"}),
    "ddp selective": Row("ddp", memory={"activation_checkpointing": "selective"}),
    "ddp every_2": Row("ddp", memory={"activation_checkpointing": "every_2"}),
    "ddp chunks": Row("ddp", memory={"loss_chunks": 8}),
    "ddp nvme": Row("ddp", memory={"offload": "optimizer_nvme"}),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "memory.json")
    asked = parser.parse_args()
    model = {"layers": asked.layers, "width": asked.width, "context": CONTEXT}
    found = {ranks: measure(ranks, model, asked.rows.split(",")) for ranks in map(int, asked.ranks.split(","))}
    for ranks, rows in found.items():
        show(ranks, rows)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({"model": model, "micro_batch": MICRO_BATCH, "ranks": found}, indent=2))
    return 0 if all(within(ranks, rows) for ranks, rows in found.items()) else 1


def measure(ranks: int, model: dict, names: list[str]) -> dict[str, dict]:
    """Mean of the ranks, by row."""
    from tests.train.gang import start_warm

    with tempfile.TemporaryDirectory() as folder:
        warm = start_warm(Path(folder) / "warm")
        try:
            return {name: weigh(Path(folder) / name, warm, ROWS[name], ranks, model) for name in names}
        finally:
            warm.close()


def weigh(home: Path, warm, row: Row, ranks: int, model: dict) -> dict:
    from tests.train.gang import Gang, sample_text

    gang = Gang(home, warm, shutil.copytree(ROOT / "benchmarks" / "train" / "weighed", home / "code"))
    shutil.copy(ROOT / "examples" / "bytegpt" / "model.py", gang.code / "bytegpt.py")
    plan = plan_of(row, ranks, model, gang.put_text(sample_text(1 << 16)))
    codes = gang.run(plan)
    if any(codes):
        raise SystemExit(f"{home.name}: ranks ended with {codes}:\n{gang.log()}")
    each = [json.loads((home / f"weight-{rank}.json").read_text()) for rank in range(ranks)]
    means = {key: sum(one[key] for one in each) / ranks for key in each[0]}
    return means | {"state": means["parameters"] + means["gradients"] + means["optimizer"]}


def plan_of(row: Row, ranks: int, model: dict, data):
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Memory, Plan, ProgramSpec

    return Plan(
        run="bench-00000000-aaaaaa", project="bench", name=f"{row.strategy}-{ranks}", run_prefix="runs/bench/0/0",
        program=ProgramSpec(task="weighed:Weighed"), strategy=row.strategy, precision=row.precision, data=data,
        mesh=Mesh(dp_shard=ranks) if row.sharded else Mesh(dp_replicate=ranks), model=model, steps=2,
        global_batch=MICRO_BATCH * ranks, micro_batch=MICRO_BATCH, memory=Memory(**row.memory),
        checkpoint=CheckpointPolicy(every=2),
    )  # fmt: skip


def show(ranks: int, rows: dict[str, dict]) -> None:
    whole = rows.get("ddp", next(iter(rows.values())))
    print(f"{ranks} ranks        state  to ddp  parameters  gradients  optimizer    peak  to ddp   (MB)")
    for name, row in rows.items():
        state, peak = (f"{row[key] / 1e6:8.1f}{row[key] / whole[key]:8.3f}" for key in ("state", "peak"))
        parts = "".join(f"{row[key] / 1e6:11.1f}" for key in ("parameters", "gradients", "optimizer"))
        print(f"{name:14}{state}{parts} {peak}")


def within(ranks: int, rows: dict[str, dict]) -> bool:
    wanted = {"zero1": 0.5 + 0.5 / ranks, "zero2": 1 / ranks, "fsdp": 1 / ranks}
    known = {name: ratio for name, ratio in wanted.items() if name in rows and "ddp" in rows}
    return all(
        abs(rows[name]["state"] / rows["ddp"]["state"] / ratio - 1) <= TOLERANCE for name, ratio in known.items()
    )


if __name__ == "__main__":
    sys.exit(main())
