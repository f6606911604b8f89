"""Saving and loading against plain torch DCP, which verifies nothing, in the same run and of the same tensors.

    python benchmarks/train/checkpoint.py [--parameters 64e6] [--ranks 1] [--rounds 5] [--folder DIR]

AdamW (12 bytes a parameter), sharded over the ranks (FSDP2) where there are several, a folder as store: one in memory
shows what the code costs, one on a disk what is waited for. Bound: a load takes at most 1.3 of plain DCP's. What is
compared alternates, in turn first and second, so that a busy machine and what the one leaves to the other strike both
alike; a ratio is the median of those of neighbours, after a round that counts for nothing. Processor seconds of all
ranks are given, too, and say the same on a machine that is shared. The rates of one core, in bytes a second,
are the floor of what a verified load can cost. What an asynchronous save blocks is a copy in memory: whether that is
little next to the save is the store's doing, and judged by `background_save.py`.
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
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

from gangline.checkpoint.format.blocks import block_digest
from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import live_state
from gangline.storage.folder.store import FolderStore

KEY = b"benchmark"
PREFIX = "runs/b/c/r/checkpoints"
WIDTH = 1024
LOADING = 1.3
Pair = tuple[float, float]
"""Seconds of the wall and of processors."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=64e6)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
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


def measure(folder: Path, layers: int, rounds: int, group: Any, *, device: str = "cpu") -> dict[str, Any]:
    store = FolderStore(folder / "store")
    model, optimizer = trained(layers, is_sharded=group is not None, device=device)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=group, keep=1)
    first = saver.save(model, optimizer, {}, step=1, wait=False)
    [done] = saver.wait()
    steps = count(2)

    def save_at_once() -> None:
        saver.save(model, optimizer, {}, step=next(steps), wait=True)

    def block() -> float:
        report = saver.save(model, optimizer, {}, step=next(steps), wait=False)
        [done] = saver.wait()
        assert done.error is None
        return report.blocking_seconds

    blocking = [block() for _ in range(rounds)]
    saves = alternated(save_at_once, partial(plain_save, model, optimizer, folder / "plain"), rounds)
    saver.close()
    loads = alternated(
        lambda: load(store, PREFIX, model, optimizer, key=KEY, group=group),
        partial(plain_load, model, optimizer, folder / "plain"),
        2 * rounds,
    )
    rows = {"save": saves[0], "plain_save": saves[1], "load": loads[0], "plain_load": loads[1]}
    seconds = {name: median(wall for wall, _ in row) for name, row in rows.items()}
    cpu = {name: median(used for _, used in row) for name, row in rows.items()}
    return {
        "checkpoint_bytes": done.size_bytes,
        "first_blocking_seconds": round(first.blocking_seconds, 4),
        "blocking_seconds": round(median(blocking), 4),
        **{f"{name}_seconds": round(each, 4) for name, each in seconds.items()},
        **{f"{name}_cpu_seconds": round(each, 4) for name, each in cpu.items()},
        "blocking_ratio": round(median(blocking) / seconds["save"], 4),
        **ratios("save", *saves),
        **ratios("load", *loads),
    }


def alternated(ours: Callable[[], object], plain: Callable[[], object], rounds: int) -> tuple[list[Pair], list[Pair]]:
    """Wall and processor seconds of both, `rounds` times side by side; who is first changes."""
    found: tuple[list[Pair], list[Pair]] = ([], [])
    for number in range(rounds + 1):
        order = ((0, ours), (1, plain)) if number % 2 else ((1, plain), (0, ours))
        for place, work in order:
            took = timed(work)
            if number:
                found[place].append(took)
    return found


def ratios(name: str, ours: Sequence[Pair], plain: Sequence[Pair]) -> dict[str, float]:
    each = [(a[0] / b[0], a[1] / b[1]) for a, b in zip(ours, plain, strict=True)]
    wall, cpu = (median(column) for column in zip(*each, strict=True))
    spread = sorted(ratio for ratio, _ in each)
    return {
        f"{name}_ratio": round(wall, 3), f"{name}_ratio_least": round(spread[0], 3),
        f"{name}_ratio_most": round(spread[-1], 3), f"{name}_cpu_ratio": round(cpu, 3),
    }  # fmt: skip


def trained(layers: int, *, is_sharded: bool, device: str = "cpu") -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, device=device) for _ in range(layers)))
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
    """What was asked of a device is done, by all ranks."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
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
