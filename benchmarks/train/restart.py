"""Kill of a rank to the next step, by gangline and by torchrun, on the same two gloo ranks in one run.

Four ways: a task forked from the warm parent; the same task in fresh interpreters, which import torch anew (cold); a
program of its own under the keeper, unchanged; the same program under torchrun. The target is the task's time over
torchrun's.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gang import NAME, launch

from gangline.launch.local import LocalLauncher
from gangline.spec.plan import CheckpointPolicy, Program

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
from gangline.train import Loss
from small import Small


class Task(Small):
    calls = 0

    def loss(self, outputs, batch):
        Task.calls += 1
        if Task.calls == {KILL_STEP} and os.environ["RANK"] == "1" and os.environ["GANGLINE_GENERATION"] == "0":
            with open(os.path.join(os.environ["BENCH_OUT"], "1.jsonl"), "a") as lines:
                print(json.dumps({{"killed": time.monotonic()}}), file=lines)
            os.kill(os.getpid(), signal.SIGKILL)
        return Loss(total=outputs.sum(), weight=outputs.numel())
"""


def main() -> None:
    ways = {
        "gangline task": task_seconds, "gangline cold": cold_seconds, "gangline program": program_seconds,
        "torchrun": torchrun_seconds,
    }  # fmt: skip
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
    for name in ("program", "cold"):
        print(f"ratio {name} : torchrun   {medians[f'gangline {name}'] / medians['torchrun']:.2f}   no target")
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    result = {"seconds": found, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET, "kill_step": KILL_STEP}
    (out / "restart.json").write_text(json.dumps(result, indent=1))


def task_seconds(folder: Path, **environ: str) -> float:
    launcher = _launch(folder, Program(task="model:Task"), {"model.py": TASK}, **environ)
    steps = [
        event.data["mono"]
        for event in launcher.follow(NAME)
        if event.data.get("event") == "step" and event.data["rank"] == 0 and event.data["generation"] == 1
    ]
    _check(launcher)
    return steps[0] - _killed(folder)


def cold_seconds(folder: Path) -> float:
    return task_seconds(folder, GANGLINE_START_METHOD="spawn")


def program_seconds(folder: Path) -> float:
    launcher = _launch(folder, Program(command=("python", "train.py")), {"train.py": PROGRAM})
    for _ in launcher.follow(NAME):
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


def _launch(folder: Path, program: Program, files: dict[str, str], **environ: str) -> LocalLauncher:
    return launch(
        folder, files, program=program, steps=KILL_STEP + 5,
        checkpoint=CheckpointPolicy(every=KILL_STEP // 2, asynchronous=False),
        environ={"BENCH_OUT": str(folder), **environ}, deadline_seconds=DEADLINE_SECONDS,
    )  # fmt: skip


def _check(launcher: LocalLauncher) -> None:
    end = launcher.collect(NAME)
    assert (end.exit_code, end.restarts) == (0, 1), end


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
