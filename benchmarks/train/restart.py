"""Kill of a rank to the next step, by gangline and by torchrun, on the same two gloo ranks in one run.

Three ways: a task forked from the warm parent; a program of its own under the keeper, unchanged; the same program under
torchrun. The target is the task's time over torchrun's.
"""

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from gangline.launch.local import LocalLauncher
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, Program
from gangline.spec.podset import PodSet
from gangline.storage.blobs import put_blob
from gangline.storage.open import open_store

ROUNDS = 3
TARGET = 0.6
KILL_STEP = 10
DEADLINE_SECONDS = 180

PROGRAM = f"""
import json, os, signal, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

attempt = int(os.environ.get("GANGLINE_GENERATION") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
lines = open(os.path.join(os.environ["BENCH_OUT"], f"{{rank}}.jsonl"), "a", buffering=1)
for step in range(1, {KILL_STEP + 5}):
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if attempt == 0 and step == {KILL_STEP} and rank == 1:
        print(json.dumps({{"killed": time.monotonic()}}), file=lines)
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps({{"step": step, "attempt": attempt, "mono": time.monotonic()}}), file=lines)
dist.barrier()
lines.close()
os._exit(0)  # what interpreters do at their end is no part of a restart
"""

TASK = f"""
import json, os, signal, time
import torch
from gangline.train import Loss


class Points:
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return {{"x": torch.ones(64)}}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 64)])

    def forward(self, x):
        return self.layers[0](x)


class Task:
    calls = 0

    def build_model(self, options):
        return Net()

    def build_data(self, split, options):
        return Points()

    def loss(self, outputs, batch):
        Task.calls += 1
        if Task.calls == {KILL_STEP} and os.environ["RANK"] == "1" and os.environ["GANGLINE_GENERATION"] == "0":
            with open(os.path.join(os.environ["BENCH_OUT"], "1.jsonl"), "a") as lines:
                print(json.dumps({{"killed": time.monotonic()}}), file=lines)
            os.kill(os.getpid(), signal.SIGKILL)
        return Loss(total=outputs.sum(), weight=outputs.numel())
"""


def main() -> None:
    ways = {"gangline task": task_seconds, "gangline program": program_seconds, "torchrun": torchrun_seconds}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, measure in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(measure(Path(folder)))
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"{name:18} {medians[name]:6.2f} s   {' '.join(f'{each:.2f}' for each in values)}")
    ratio = medians["gangline task"] / medians["torchrun"]
    print(f"ratio task : torchrun   {ratio:.2f}   target <= {TARGET}")
    print(f"ratio program : torchrun   {medians['gangline program'] / medians['torchrun']:.2f}   no target")
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    result = {"seconds": found, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET, "kill_step": KILL_STEP}
    (out / "restart.json").write_text(json.dumps(result, indent=1))


def task_seconds(folder: Path) -> float:
    launcher = _launch(folder, Program(task="model:Task"), {"model.py": TASK})
    steps = [
        event.data["mono"]
        for event in launcher.follow("bench")
        if event.data.get("event") == "step" and event.data["rank"] == 0 and event.data["generation"] == 1
    ]
    _check(launcher)
    return steps[0] - _killed(folder)


def program_seconds(folder: Path) -> float:
    launcher = _launch(folder, Program(command=("python", "train.py")), {"train.py": PROGRAM})
    for _ in launcher.follow("bench"):
        pass
    _check(launcher)
    return _next_step(folder) - _killed(folder)


def torchrun_seconds(folder: Path) -> float:
    (folder / "train.py").write_text(PROGRAM)
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3",
         "train.py"],
        cwd=folder, check=True, timeout=DEADLINE_SECONDS, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "BENCH_OUT": str(folder), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )  # fmt: skip
    return _next_step(folder) - _killed(folder)


def _launch(folder: Path, program: Program, files: dict[str, str]) -> LocalLauncher:
    store = open_store(f"file:{folder / 'store'}")
    plan = Plan(
        run="bench", project="bench", name="ddp-2", run_prefix="runs/bench/c/bench", program=program, strategy="ddp",
        mesh=Mesh(dp_replicate=2), steps=KILL_STEP + 5, global_batch=16, micro_batch=8,
        checkpoint=CheckpointPolicy(every=KILL_STEP // 2, asynchronous=False),
    )  # fmt: skip
    podset = PodSet(
        name="bench", run="bench", project="bench", commit="c", procs_per_node=2, code=put_blob(store, _tar(files)),
        plan=put_blob(store, plan.to_json()), store=store.url, env={"BENCH_OUT": str(folder)},
        secrets=("checkpoint-key",), deadline_seconds=DEADLINE_SECONDS,
    )  # fmt: skip
    launcher = LocalLauncher(folder / "gangs", store=store, secrets=lambda _: b"k" * 32)
    launcher.submit(podset)
    return launcher


def _check(launcher: LocalLauncher) -> None:
    end = launcher.collect("bench")
    assert (end.exit_code, end.restarts) == (0, 1), end


def _tar(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def _lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for rank in (0, 1) for line in _read(folder / f"{rank}.jsonl").splitlines()]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _killed(folder: Path) -> float:
    return next(line["killed"] for line in _lines(folder) if "killed" in line)


def _next_step(folder: Path) -> float:
    return min(line["mono"] for line in _lines(folder) if line.get("attempt"))


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"took {time.monotonic() - start:.0f} s")
