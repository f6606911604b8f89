"""Blocking part of an asynchronous save, against a synchronous one of the same model in the same run; and loading.

    python benchmarks/train/checkpoint.py [--parameters 64e6] [--rounds 3] [--folder DIR]

One rank, AdamW (12 bytes a parameter), a folder as store. Bound: blocking <= 5 % of a synchronous save. Loading is
shown beside plain torch DCP, whose load checks nothing: hashing runs on threads of its own, so that ratio depends on
how many cores are free (aim: 1.3). Saves alternate, so that a busy machine strikes both alike.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.checkpoint.state import live_state
from gangline.storage.local import FolderStore

KEY = b"benchmark"
PREFIX = "runs/b/c/r/checkpoints"
WIDTH = 1024


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=64e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    try:
        result = measure(folder, layers=max(1, round(asked.parameters / WIDTH**2)), rounds=asked.rounds)
    finally:
        shutil.rmtree(folder)
    show(result)
    return 0 if result["blocking_ratio"] <= 0.05 else 1


def measure(folder: Path, *, layers: int, rounds: int) -> dict[str, float]:
    store = FolderStore(folder / "store")
    model, optimizer = trained(layers)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=None, keep=1)
    first = saver.save(model, optimizer, {}, step=1, wait=False)
    saver.wait()
    blocking, waited, plain_saves = [], [], []
    for round_ in range(rounds):
        report = saver.save(model, optimizer, {}, step=2 * round_ + 2, wait=False)
        [done] = saver.wait()
        assert done.error is None
        blocking.append(report.blocking_seconds)
        waited.append(saver.save(model, optimizer, {}, step=2 * round_ + 3, wait=True).seconds)
        plain_saves.append(timed(lambda: plain_save(model, optimizer, folder / "plain")))
    loads, plain_loads = [], []
    for _ in range(rounds):
        loads.append(timed(lambda: load(store, PREFIX, model, optimizer, key=KEY, group=None)))
        plain_loads.append(
            timed(lambda: dcp.load(live_state(model, optimizer).tensors, checkpoint_id=folder / "plain"))
        )
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        "checkpoint_bytes": done.size_bytes,
        "first_blocking_seconds": round(first.blocking_seconds, 4),
        "blocking_seconds": round(median(blocking), 4),
        "synchronous_save_seconds": round(median(waited), 4),
        "plain_dcp_save_seconds": round(median(plain_saves), 4),
        "load_seconds": round(median(loads), 4),
        "plain_dcp_load_seconds": round(median(plain_loads), 4),
        "blocking_ratio": round(median(blocking) / median(waited), 4),
        "load_ratio": round(median(loads) / median(plain_loads), 3),
    }


def trained(layers: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters())
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def plain_save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    dcp.save(live_state(model, optimizer).tensors, checkpoint_id=folder)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(result: dict[str, float]) -> None:
    for name, value in result.items():
        print(f"{name:28} {value:>14,}")
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
