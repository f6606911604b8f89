"""Kill of a rank to the next step, by gangline and by torchrun, on the same gloo ranks in one run.

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
from dataclasses import dataclass
from pathlib import Path

from gang import NAME, RANKS, launch

from gangline.launch.local import LocalLauncher
from gangline.spec.plan import CheckpointPolicy, Device, ProgramSpec

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
device = os.environ["BENCH_DEVICE"]
rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if device == "cuda" else "gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64, device=device))
optimizer = torch.optim.AdamW(model.parameters())
lines = open(os.path.join(os.environ["BENCH_OUT"], f"{{rank}}.jsonl"), "a", buffering=1)
for step in range(1, {KILL_STEP + 5}):
    model(torch.ones(8, 64, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if device == "cuda":
        torch.cuda.synchronize()
    if attempt == 0 and step == {KILL_STEP} and rank == last:
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
    kill_at = {KILL_STEP} * 2 // int(os.environ["WORLD_SIZE"])  # batches of 16 in passes of 8

    def loss(self, outputs, batch):
        Task.calls += 1
        last = str(int(os.environ["WORLD_SIZE"]) - 1)
        if Task.calls == self.kill_at and os.environ["RANK"] == last and os.environ["GANGLINE_GENERATION"] == "0":
            with open(os.path.join(os.environ["BENCH_OUT"], f"{{last}}.jsonl"), "a") as lines:
                print(json.dumps({{"killed": time.monotonic()}}), file=lines)
            os.kill(os.getpid(), signal.SIGKILL)
        return Loss(total=outputs.sum(), weight=outputs.numel())
"""


def main() -> None:
    found = measured(ROUNDS)
    middle = medians(found)
    for name, values in found.items():
        print(f"{name:18} {middle[name]:6.2f} s   {' '.join(f'{each:.2f}' for each in values)}")
    ratio = middle["gangline task"] / middle["torchrun"]
    print(f"ratio task : torchrun   {ratio:.2f}   target <= {TARGET}")
    for name in ("program", "cold"):
        print(f"ratio {name} : torchrun   {middle[f'gangline {name}'] / middle['torchrun']:.2f}   no target")
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    result = {"seconds": found, "ratio": ratio, "target": TARGET, "met": ratio <= TARGET, "kill_step": KILL_STEP}
    (out / "restart.json").write_text(json.dumps(result, indent=1))


def measured(rounds: int, *, device: Device = "cpu", ranks: int = RANKS) -> dict[str, list[float]]:
    """Seconds of each round by each of the ways, which take turns."""
    ways = {
        "gangline task": task_seconds, "gangline cold": cold_seconds, "gangline program": program_seconds,
        "torchrun": torchrun_seconds,
    }  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, measure in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(measure(Place(Path(folder), device, ranks)))
    return found


def medians(found: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in found.items()}


@dataclass(frozen=True)
class Place:
    """Folder, device and size of one gang."""

    folder: Path
    device: Device
    ranks: int

    @property
    def environ(self) -> dict[str, str]:
        return {"BENCH_OUT": str(self.folder), "BENCH_DEVICE": self.device}


def task_seconds(place: Place, **environ: str) -> float:
    launcher = _launch(place, ProgramSpec(task="model:Task"), {"model.py": TASK}, **environ)
    steps = [
        event.data["mono"]
        for event in launcher.follow(NAME)
        if event.data.get("event") == "step" and event.data["rank"] == 0 and event.data["generation"] == 1
    ]
    _check(launcher)
    return steps[0] - _killed(place)


def cold_seconds(place: Place) -> float:
    return task_seconds(place, GANGLINE_START_METHOD="spawn")


def program_seconds(place: Place) -> float:
    launcher = _launch(place, ProgramSpec(command=("python", "train.py")), {"train.py": PROGRAM})
    for _ in launcher.follow(NAME):
        pass
    _check(launcher)
    return _next_step(place) - _killed(place)


def torchrun_seconds(place: Place) -> float:
    (place.folder / "train.py").write_text(PROGRAM)
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={place.ranks}",
         "--max-restarts=3", "train.py"],
        cwd=place.folder, check=True, timeout=DEADLINE_SECONDS, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **place.environ},
    )  # fmt: skip
    return _next_step(place) - _killed(place)


def _launch(place: Place, program: ProgramSpec, files: dict[str, str], **environ: str) -> LocalLauncher:
    return launch(
        place.folder, files, program=program, steps=KILL_STEP + 5, device=place.device, ranks=place.ranks,
        checkpoint=CheckpointPolicy(every=KILL_STEP // 2, asynchronous=False),
        environ={**place.environ, **environ}, deadline_seconds=DEADLINE_SECONDS,
    )  # fmt: skip


def _check(launcher: LocalLauncher) -> None:
    end = launcher.collect(NAME)
    assert (end.exit_code, end.restarts) == (0, 1), end


def _lines(place: Place) -> list[dict[str, float]]:
    return [json.loads(line) for path in sorted(place.folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def _killed(place: Place) -> float:
    return next(line["killed"] for line in _lines(place) if "killed" in line)


def _next_step(place: Place) -> float:
    return min(line["mono"] for line in _lines(place) if line.get("attempt"))


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"took {time.monotonic() - start:.0f} s")
