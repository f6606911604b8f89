"""Saving and loading against plain torch DCP, which verifies nothing, in the same run and of the same tensors.

    python benchmarks/train/checkpoint.py [--parameters 64e6] [--ranks 1] [--rounds 3] [--folder DIR]

AdamW (12 bytes a parameter), sharded over the ranks (FSDP2) where there are several, a folder as store: one in memory
shows what the code costs, one on a disk what is waited for. Bound: a load takes at most 1.3 of plain DCP's. What is
compared alternates, so that a busy machine strikes both alike; processor seconds of all ranks stand beside the wall,
and say the same on a machine that is shared. The rates of one core, in bytes a second, are the floor of what a verified
load can cost. What an asynchronous save blocks is a copy in memory: whether that is little beside the save is the
store's doing, and judged by `beside.py`.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

from gangline.checkpoint.blocks import block_digest
from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import live_state
from gangline.storage.local import FolderStore

KEY = b"benchmark"
PREFIX = "runs/b/c/r/checkpoints"
WIDTH = 1024
LOADING = 1.3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=64e6)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    layers = max(1, round(asked.parameters / WIDTH**2))
    ranks = [
        context.Process(target=rank_main, args=(rank, asked.ranks, folder, layers, asked.rounds, answers))
        for rank in range(asked.ranks)
    ]
    try:
        for process in ranks:
            process.start()
        result = answers.get(timeout=1800)
        for process in ranks:
            process.join()
    finally:
        shutil.rmtree(folder)
    show(result)
    return 0 if result["load_ratio"] <= LOADING else 1


def rank_main(rank: int, ranks: int, folder: Path, layers: int, rounds: int, answers: Any) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings(
        "ignore", message="torch.distributed is disabled|Detected an existing", category=UserWarning
    )
    group = None
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
        group = dist.new_group(backend="gloo")
    rates = core_rates(folder / "block") if rank == 0 else {}
    result = measure(folder, layers, rounds, group)
    if rank == 0:
        answers.put({"ranks": ranks, **result, **rates})
    if group is not None:
        dist.barrier()
        dist.destroy_process_group()


def measure(folder: Path, layers: int, rounds: int, group: Any) -> dict[str, Any]:
    store = FolderStore(folder / "store")
    model, optimizer = trained(layers, is_sharded=group is not None)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=group, keep=1)
    first = saver.save(model, optimizer, {}, step=1, wait=False)
    saver.wait()
    blocking, saves, plain_saves, loads, plain_loads = [], [], [], [], []
    for step in range(2, 2 * rounds + 1, 2):
        report = saver.save(model, optimizer, {}, step=step, wait=False)
        [done] = saver.wait()
        assert done.error is None
        blocking.append(report.blocking_seconds)
        saves.append(timed(partial(saver.save, model, optimizer, {}, step=step + 1, wait=True)))
        plain_saves.append(timed(lambda: plain_save(model, optimizer, folder / "plain")))
    saver.close()
    for _ in range(rounds):
        loads.append(timed(lambda: load(store, PREFIX, model, optimizer, key=KEY, group=group)))
        plain_loads.append(timed(lambda: plain_load(model, optimizer, folder / "plain")))
    rows = {"save": saves, "plain_save": plain_saves, "load": loads, "plain_load": plain_loads}
    seconds = {name: median(wall for wall, _ in row) for name, row in rows.items()}
    cpu = {name: median(used for _, used in row) for name, row in rows.items()}
    return {
        "checkpoint_bytes": done.size_bytes,
        "first_blocking_seconds": round(first.blocking_seconds, 4),
        "blocking_seconds": round(median(blocking), 4),
        **{f"{name}_seconds": round(each, 4) for name, each in seconds.items()},
        **{f"{name}_cpu_seconds": round(each, 4) for name, each in cpu.items()},
        "blocking_ratio": round(median(blocking) / seconds["save"], 4),
        "save_ratio": round(seconds["save"] / seconds["plain_save"], 3),
        "save_cpu_ratio": round(cpu["save"] / cpu["plain_save"], 3),
        "load_ratio": round(seconds["load"] / seconds["plain_load"], 3),
        "load_cpu_ratio": round(cpu["load"] / cpu["plain_load"], 3),
    }


def trained(layers: int, *, is_sharded: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    if is_sharded:
        for layer in (*model, model):
            fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters())
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def plain_save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    dcp.save(live_state(model, optimizer).tensors, checkpoint_id=folder)


def plain_load(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    dcp.load(live_state(model, optimizer).tensors, checkpoint_id=folder)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the wall and of processors, of all ranks together, which all call this."""
    meet()
    start, cpu = time.perf_counter(), processor_seconds()
    work()
    used = torch.tensor(processor_seconds() - cpu)
    meet()
    wall = time.perf_counter() - start
    if dist.is_initialized():
        dist.all_reduce(used)
    return wall, float(used)


def meet() -> None:
    if dist.is_initialized():
        dist.barrier()


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def core_rates(path: Path, size: int = 256 * 2**20) -> dict[str, int]:
    """Bytes a second that one core reads from the page cache into memory in use, and that it hashes."""
    data = bytearray(size)
    path.write_bytes(data)
    found = {}
    with path.open("rb", buffering=0) as file:
        for name, work in (
            ("read", lambda: (file.seek(0), file.readinto(data))),
            ("block_digest", lambda: block_digest([data])),
        ):
            took = []
            for _ in range(5):
                start = time.thread_time()
                work()
                took.append(time.thread_time() - start)
            found[f"{name}_bytes_per_cpu_second"] = round(size / min(took))
    path.unlink()
    return found


def show(result: dict[str, Any]) -> None:
    for name, value in result.items():
        print(f"{name:34} {value:>16,}")
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
