"""Steps of a program that tells what it runs, against the same steps of one that does not, in one run.

    python benchmarks/train/import_audit.py [--blocks 40] [--json FILE]

Two processes do the same steps in turn, a block of one after a block of the other; one has the start-up hooks of a rank
(`train/startup`): the audit of what it runs, and the watch of its processes. Three programs: `compute`, steps of torch
with a beat each, as the runtime takes them; `known`, 64 files of a declared folder opened and read per step beside
10 ms of arithmetic; `fresh`, 64 files that nothing declares, none opened before.

Seconds are those of the process, not of the clock: other work on the machine does not count. Of each block its fastest
step counts; two neighbouring blocks give one ratio. Bound: the median of these ratios is at most 1.01
for `compute` and `known`. `fresh` is told, without a bound: no training opens only files that it never opened before.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median, quantiles

from gangline.train.startup import audit, processes

os.environ["OMP_NUM_THREADS"] = "1"
BOUND = 1.01
BLOCK = 5
FILES = 64
WARM_UP = 4
"""Blocks that do not count."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = {name: compare(name, asked.blocks) for name in PROGRAMS}
    for name, row in found.items():
        print(
            f"{name:8} step {row['step_ms']:7.2f} ms, watched / bare {row['ratio']:.4f}"
            f" (quartiles {row['low']:.4f} to {row['high']:.4f}, {asked.blocks} pairs)"
        )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(found[name]["ratio"] > BOUND for name in ("compute", "known")))


def compare(name: str, blocks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        steps = BLOCK * (WARM_UP + blocks)
        sides = [
            _start(name, Path(place) / side, watched=side == "watched", steps=steps) for side in ("bare", "watched")
        ]
        pairs = [[_block(channel) for channel, _ in sides] for _ in range(WARM_UP + blocks)][WARM_UP:]
        for channel, process in sides:
            channel.send(False)
            process.join()
    ratios = [watched / bare for bare, watched in pairs]
    low, middle, high = quantiles(ratios, n=4)
    return {"ratio": middle, "low": low, "high": high, "step_ms": 1000 * median(bare for bare, _ in pairs)}


def _block(channel: Connection) -> float:
    channel.send(True)
    return float(channel.recv())


def _start(name: str, home: Path, *, watched: bool, steps: int) -> tuple[Connection, BaseProcess]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_side, args=(name, home, watched, theirs, steps))
    process.start()
    return ours, process


def _side(name: str, home: Path, watched: bool, channel: Connection, steps: int) -> None:
    (home / "data").mkdir(parents=True)
    if watched:
        processes.begin({"GANGLINE_PROCESSES": str(home / "processes.jsonl")})
        audit.begin({"GANGLINE_RAN": str(home / "ran.jsonl"), "GANGLINE_CODE": str(home / "data")})
    step = PROGRAMS[name](home, steps)
    while channel.recv():
        seconds = []
        for _ in range(BLOCK):
            began = time.process_time()
            step()
            seconds.append(time.process_time() - began)
        channel.send(min(seconds))


def _compute(_: Path, __: int) -> Callable[[], object]:
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(256, 256)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        sys.audit("gangline.beat")

    return step


def _known(home: Path, _: int) -> Callable[[], object]:
    paths = list(_files(home / "data", FILES))
    return lambda: _read(paths)


def _fresh(home: Path, steps: int) -> Callable[[], object]:
    numbers = iter(range(10**9))
    folder = home / "outside"
    folder.mkdir()

    def step() -> None:
        _read(folder / str(next(numbers)) for _ in range(FILES))

    next(_files(folder, 1))
    for number in range(1, FILES * steps):
        os.link(folder / "0", folder / str(number))
    return step


def _files(folder: Path, count: int) -> Iterator[Path]:
    for number in range(count):
        (folder / str(number)).write_bytes(os.urandom(4096))
        yield folder / str(number)


def _read(paths: Iterable[Path]) -> None:
    for path in paths:
        path.read_bytes()
    end = time.process_time() + 0.01
    while time.process_time() < end:
        sum(range(1000))


PROGRAMS = {"compute": _compute, "known": _known, "fresh": _fresh}

if __name__ == "__main__":
    sys.exit(main())
