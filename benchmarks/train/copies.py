"""Resuming from copies in memory against resuming from the store, in the same run: two nodes of one rank each.

    python benchmarks/train/copies.py [--parameters 64e6] [--rounds 3] [--store-gigabits G] [--peer-gigabits 25]

Sharded parameters and AdamW's moments (12 bytes a parameter). `node` reads what each node keeps itself, as after the
death of ranks; `peer` what the other node keeps, as after the loss of a node with its memory. The store is MinIO where
`make tools` built it, else a folder; either lies in this machine's memory. With `--store-gigabits` (as root, with
iproute2) all runs in a network of its own, whose loopback passes no more than that many gigabits a second from the
store to both nodes together, and `--peer-gigabits` between them; without it loopback is the network, and what a way to
a store costs is left out. A peer is five times faster than stores that give all nodes together less than
`five_times_below` bytes a second.
"""

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).parents[2]))

from plans import alone, has_own_network

from gangline.checkpoint.loader import load
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.saver import Saver
from gangline.storage.folder.store import FolderStore
from gangline.storage.open import open_store

KEY = b"benchmark"
PREFIX = "runs/b/c/r/checkpoints"
WIDTH = 1024
MEMORY = Path("/dev/shm")  # where copies live


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=64e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store-gigabits", type=float)
    parser.add_argument("--peer-gigabits", type=float, default=25.0)
    asked = parser.parse_args()
    if asked.store_gigabits and not has_own_network():
        return alone(sys.argv)
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        with store_of(folder) as (name, url, access):
            if asked.store_gigabits:
                if access is None:
                    raise SystemExit("a store behind a narrow link wants MinIO, found none; `make tools` builds it")
                narrow(access[0], asked.store_gigabits, asked.peer_gigabits)
            layers = max(2, round(asked.parameters / WIDTH**2))
            found = in_two_ranks(folder, layers, asked.rounds, url, access)
            result = {"store": name, "store_gigabits": asked.store_gigabits or 0, **found}
    finally:
        shutil.rmtree(folder)
    show(result)
    return 0


@contextmanager
def store_of(folder: Path) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    from tests.contracts.storage.servers import S3Server
    from tests.tools.__main__ import tools_folder

    if not (tools_folder() / "minio").is_file():
        yield "folder", f"file:{folder / 'store'}", None
        return
    server = S3Server("minio", folder / "minio").start()
    try:
        yield "minio", f"s3://{server.bucket}/b", (server.endpoint, server.credentials)
    finally:
        server.stop()


def narrow(endpoint: str, store_gigabits: float, peer_gigabits: float) -> None:
    """Let loopback pass so much: what leaves the server at `endpoint`, and all else."""
    port = endpoint.rpartition(":")[2]
    for command in (
        "qdisc add dev lo root handle 1: htb default 20",
        f"class add dev lo parent 1: classid 1:10 htb rate {store_gigabits}gbit burst 1m",
        f"class add dev lo parent 1: classid 1:20 htb rate {peer_gigabits}gbit burst 8m",
        f"filter add dev lo parent 1: protocol ip u32 match ip sport {port} 0xffff flowid 1:10",
    ):
        subprocess.run(["tc", *command.split()], check=True)


def in_two_ranks(folder: Path, layers: int, rounds: int, url: str, access: Any) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=rank_main, args=(rank, folder, layers, rounds, url, access, answers)) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    found: dict[str, Any] = answers.get(timeout=1800)
    for process in ranks:
        process.join()
    return found


def rank_main(rank: int, folder: Path, layers: int, rounds: int, url: str, access: Any, answers: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    group = dist.new_group(backend="gloo")
    store = open_store(url, endpoint=access[0], credentials=access[1]) if access else FolderStore(url[5:])
    model, optimizer = trained(layers)
    keep = folder / f"node-{rank}"
    keep.mkdir()
    copies = NodeCopies(keep, rank)
    saver = Saver(
        store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=group, copies=copies
    )
    report = saver.save(model, optimizer, {}, step=1, wait=True)
    assert report is not None
    assert report.copied_seconds is not None

    def resume(copies: NodeCopies | None) -> None:
        loaded = load(store, PREFIX, model, optimizer, key=KEY, group=group, copies=copies)
        assert loaded is not None
        assert loaded.from_copy == (copies is not None)

    seconds: dict[str, list[float]] = {"store": [], "node": [], "peer": []}
    for _ in range(rounds):
        seconds["store"].append(timed(lambda: resume(None)))
        seconds["node"].append(timed(lambda: resume(copies)))
        if rank == 1:
            shutil.rmtree(keep)
            keep.mkdir()
        seconds["peer"].append(timed(lambda: resume(copies)))
    if rank == 0:
        answers.put(summary(report.size_bytes, report.seconds, report.copied_seconds, seconds))
    dist.barrier()
    dist.destroy_process_group()


def trained(layers: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def timed(work: Callable[[], None]) -> float:
    dist.barrier()
    start = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - start


def summary(size: int, saved: float, copied: float, seconds: dict[str, list[float]]) -> dict[str, Any]:
    middle = {name: median(each) for name, each in seconds.items()}
    return {
        "checkpoint_bytes": size,
        "saved_seconds": round(saved, 4),
        "copied_seconds": round(copied, 4),
        **{f"{name}_seconds": round(each, 4) for name, each in middle.items()},
        "five_times_below": round(size / middle["peer"] / 5),
        "node_ratio": round(middle["store"] / middle["node"], 2),
        "peer_ratio": round(middle["store"] / middle["peer"], 2),
    }


def show(result: dict[str, Any]) -> None:
    for name, value in result.items():
        print(f"{name:20} {value:>16,}" if isinstance(value, (int, float)) else f"{name:20} {value:>16}")
    folder = Path(".gangline/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "copies.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
