"""Steps during a save in flight against steps alone, in the same run: what a save in the background costs training.

    python benchmarks/train/background_save.py [--width 1024] [--layers 24] [--seconds 60]
        [--store-megabytes-per-second 100]

One rank on one core trains by AdamW; saves follow one another, so that one is always in flight, and stretches with them
alternate with stretches without. The store is a folder whose writes take as long as at the given rate (0: as long as
they take). What `save` itself takes is told apart, and is no part of a step. Bounds: blocking at most 5 % of what the
same save takes when it is waited for, the 99th percentile of steps during saves at most 10 % above that of steps alone.
It takes a second core, as the thread that writes has in a gang with more cores than ranks.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch import nn

from gangline.checkpoint.saver import Saver
from gangline.storage.folder.store import FolderStore

PREFIX = "runs/b/c/r/checkpoints"
STRETCHES = 10
BLOCKING, SLOWER = 0.05, 1.10


class Paced:
    """A folder store that takes bytes at a rate."""

    def __init__(self, store: FolderStore, bytes_per_second: float) -> None:
        self._store, self._rate = store, bytes_per_second

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, data: bytes) -> Any:
        return self._taking(len(data), self._store.put, key, data)

    @contextmanager
    def upload(self, key: str) -> Iterator[Any]:
        with self._store.upload(key) as upload:
            part, upload.part = upload.part, lambda data: self._taking(len(data), part, data)
            yield upload

    def _taking(self, size: int, write: Any, *arguments: Any) -> Any:
        end = time.monotonic() + (size / self._rate if self._rate else 0)
        answer = write(*arguments)
        time.sleep(max(0.0, end - time.monotonic()))
        return answer


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--store-megabytes-per-second", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    store = Paced(FolderStore(folder / "store"), asked.store_megabytes_per_second * 1e6)
    try:
        result = measure(store, *trained(asked.width, asked.layers), asked.seconds / 2 / STRETCHES)
    finally:
        shutil.rmtree(folder)
    show(result | {"store_megabytes_per_second": asked.store_megabytes_per_second})
    return 0 if result["blocking_ratio"] <= BLOCKING and result["p99_ratio"] <= SLOWER else 1


def measure(store: Any, model: nn.Module, optimizer: torch.optim.Optimizer, stretch: float) -> dict[str, float]:
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=b"k", group=None, keep=1)
    waited = saver.save(model, optimizer, {}, step=1, wait=True)
    assert waited is not None
    alone: list[float] = []
    during: list[float] = []
    blocking: list[float] = []
    for _ in range(STRETCHES):
        alone += steps(model, optimizer, stretch)
        end = time.monotonic() + stretch
        while time.monotonic() < end:
            report = saver.save(model, optimizer, {}, step=2 + len(blocking), wait=False)
            assert report is not None
            blocking.append(report.blocking_seconds)
            during += steps_until_saved(saver, model, optimizer)
    p99 = {name: quantiles(each, n=100)[98] for name, each in (("alone", alone), ("during", during))}
    middle = {name: median(each) for name, each in (("alone", alone), ("during", during))}
    return {
        "checkpoint_bytes": waited.size_bytes,
        "saves": len(blocking),
        "steps_alone": len(alone),
        "steps_during": len(during),
        "save_seconds": round(waited.seconds, 4),
        "blocking_seconds": round(median(blocking), 4),
        **{f"{name}_median_seconds": round(each, 5) for name, each in middle.items()},
        **{f"{name}_p99_seconds": round(each, 5) for name, each in p99.items()},
        "blocking_ratio": round(median(blocking) / waited.seconds, 4),
        "median_ratio": round(middle["during"] / middle["alone"], 3),
        "p99_ratio": round(p99["during"] / p99["alone"], 3),
    }


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, seconds: float) -> list[float]:
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        found.append(step_seconds(model, optimizer))
    return found


def steps_until_saved(saver: Saver, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    found = []
    while not (reports := saver.poll()):
        found.append(step_seconds(model, optimizer))
    assert reports[0].error is None, reports[0].error
    return found[:-1]  # the save ended in the last one


def step_seconds(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    start = time.perf_counter()
    model(torch.ones(16, model[0].in_features)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - start


def trained(width: int, layers: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters())
    step_seconds(model, optimizer)
    return model, optimizer


def show(result: dict[str, float]) -> None:
    for name, value in result.items():
        print(f"{name:28} {value:>14,}")
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "background_save.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
