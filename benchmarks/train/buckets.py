"""Steps of DDP by the size of its buckets, on two gloo ranks of this machine, beside what the planner's model expects.

    python benchmarks/train/buckets.py [--mib 0.25,1,4,16,64,256] [--steps 40] [--models "13 MB;76 MB"] [--json FILE]

The copies of one model, each with its own size of buckets, take turns step by step in the same two processes, in an
order that is drawn anew for each turn; of each the median of its steps over those of torch's own buckets beside them
counts. Torch's own come twice: what lies between the two is the noise of the others. One core a rank.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "bytegpt"))
MODELS = {
    "13 MB": {"layers": 4, "width": 256, "context": 64},
    "76 MB": {"layers": 6, "width": 512, "context": 64},
    "170 MB": {"layers": 6, "width": 768, "context": 64},
}
"""Models by the bytes of their gradients."""
SAMPLES = 2
WARM_UP = 3
"""Turns that do not count: DDP lays out its buckets anew after the first."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", default="0.25,1,4,16,64,256")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--models", default=";".join(MODELS))
    parser.add_argument("--json", type=Path, default=ROOT / ".gangline" / "benchmarks" / "buckets.json")
    asked = parser.parse_args()
    sizes = {"torch": None, "torch again": None}
    sizes |= {f"{each} MiB": int(float(each) * 2**20) for each in asked.mib.split(",")}
    found = {}
    for name in asked.models.split(";"):
        seconds = measure(MODELS[name], sizes, asked.steps)
        found[name] = {size: _beside(each, seconds["torch"]) for size, each in seconds.items()}
        print(f"{name}, torch's own {median(seconds['torch']):.4f} s a step, load {os.getloadavg()[0]:.1f}")
        for size, row in found[name].items():
            print(f"  {size:12} {row['ratio'] - 1:+7.1%}   quartiles {row['low'] - 1:+.1%} {row['high'] - 1:+.1%}")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(found, indent=2))
    return 0


def _beside(seconds: list[float], base: list[float]) -> dict[str, float]:
    ratios = [own / other for own, other in zip(seconds, base, strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    return {"ratio": middle, "low": low, "high": high, "steps": len(ratios)}


def measure(model: dict[str, int], sizes: dict[str, int | None], steps: int) -> dict[str, list[float]]:
    """Seconds of forward and backward by size, turn by turn."""
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")
        peers = [context.Process(target=_be_rank, args=(rank, Path(folder), model, sizes, steps)) for rank in (0, 1)]
        for peer in peers:
            peer.start()
        for peer in peers:
            peer.join()
        if any(peer.exitcode for peer in peers):
            raise SystemExit(f"ranks ended with {[peer.exitcode for peer in peers]}")
        return json.loads((Path(folder) / "found.json").read_text())


def _be_rank(rank: int, folder: Path, model: dict[str, int], sizes: dict[str, int | None], steps: int) -> None:
    import torch
    import torch.distributed as dist
    from model import GPT

    from gangline.train.account.clock import WaitMeter
    from gangline.train.parallel.data_parallel import Replicated

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    device, tokens = torch.device("cpu"), torch.randint(256, (SAMPLES, model["context"]))
    copies = {
        name: Replicated(GPT(**model), device=device, bucket_bytes=size, waits=WaitMeter())
        for name, size in sizes.items()
    }
    seconds, draw = {name: [] for name in sizes}, random.Random(1)
    for turn in range(WARM_UP + steps):
        for name in draw.sample(list(sizes), len(sizes)):
            dist.barrier()
            start = time.perf_counter()
            copies[name].model(tokens).square().mean().backward()
            if turn >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
            copies[name].bare.zero_grad(set_to_none=False)
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(seconds))
    dist.barrier()
    os._exit(0)  # as ranks of a gang end: torch's threads may abort an interpreter that winds down


if __name__ == "__main__":
    sys.exit(main())
