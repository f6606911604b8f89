"""Updates that arrive in the next forward pass, compared with steps that wait for them.

    python benchmarks/optim/bench_overlap.py

Two gloo ranks on one thread each, over loopback and over links of some rates between two network namespaces (as root).
Muon of one iteration, as the exchange is what is compared, under DDP on blocks of two matrices. A block computes on the
cores that send as well, or sleeps, as a host does whose device computes. Copies of one model take turns in the same
processes, and all end with the same bits, which is checked. Timed is a step and the forward pass after it, on the
slower rank. Ratios are of one turn to the first way's of the same turn: median and quartiles. After the time that
this rank waited for updates comes what the simulator of the plan says, by the time that blocks sleep and the rate of
the link, and by that at which updates travelled where steps waited for the same buckets.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.simulate import simulate
from gangline.optim.routing import partition_params
from gangline.optim.rules.muon import Muon

BLOCKS, WIDTH, ROWS, TURNS = 16, 256, 256, 20
BLOCK_ELEMENTS = 2 * WIDTH * 4 * WIDTH
SLEEP_SECONDS = 0.02
"""Time that a block sleeps."""
WAYS: dict[str, dict[str, Any]] = {
    "waits, one bucket": {},
    "waits, a bucket a block": {"bucket_elements": BLOCK_ELEMENTS},
    "overlap, a bucket a block": {"overlap": "forward"},
}
SAME_BUCKETS = "waits, a bucket a block"
SENT_BYTES = BLOCKS * BLOCK_ELEMENTS * 4 / 2
"""Bytes that each rank sends."""
SCENES = ((0, False), (1_000, True), (300, True))
"""Megabits a second of the link, 0: loopback; do blocks sleep?"""
Seconds = dict[str, list[tuple[float, float]]]
"""Seconds of each turn and seconds waited in it, for each way; the last pair is the simulator's, at two rates."""


class Block(nn.Module):
    """Two layers beside a residual."""

    def __init__(self, *, sleeps: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self._sleeps = sleeps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._sleeps:
            time.sleep(SLEEP_SECONDS)
        return x + self.down(torch.tanh(self.up(x)))


class Way:
    """A model and its optimizer on this rank."""

    def __init__(self, *, sleeps: bool, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(Block(sleeps=sleeps) for _ in range(BLOCKS)))
        self._outer = DistributedDataParallel(self.model)
        self._optimizer = MatrixOptimizer(
            partition_params(self.model), rule=Muon(lr=0.02, dtype="float32", ns_steps=1), replicas=dist.group.WORLD,
            options=PlanOptions(**options),
        )  # fmt: skip
        if "overlap" in options:
            self._optimizer.overlap_forward(self.model, units=self.model)
        torch.manual_seed(dist.get_rank())
        self._inputs = torch.randn(1 if sleeps else ROWS, WIDTH)
        self._backward(self._outer(self._inputs))

    def turn(self) -> tuple[float, float]:
        """Seconds of a step and a forward pass, and those waited for updates; a backward pass follows."""
        dist.barrier()
        start, before = time.perf_counter(), self._optimizer.waited_seconds
        self._optimizer.step()
        outputs = self._outer(self._inputs)
        seconds = torch.tensor(time.perf_counter() - start)
        waited = self._optimizer.waited_seconds - before
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        self._backward(outputs)
        return float(seconds), waited

    def simulated(self, bytes_per_second: float) -> float:
        """Seconds that the simulator says are waited."""
        rate = SyncRate(bytes_per_second=bytes_per_second, latency_seconds=0.0)
        return simulate(self._optimizer.plans[0], sync=rate, forward_seconds=BLOCKS * SLEEP_SECONDS).exposed_seconds

    def _backward(self, outputs: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        outputs.square().mean().backward()


def measure(rank: int, address: str, megabits: int, *, sleeps: bool) -> Seconds:
    """All ways in turn, on one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29500", rank=rank, world_size=2)
    ways = {name: Way(sleeps=sleeps, **options) for name, options in WAYS.items()}
    found: Seconds = {name: [] for name in WAYS}
    for turn in range(TURNS + 2):
        for name, way in ways.items():
            seconds = way.turn()
            if turn > 1:  # the first ones connect
                found[name].append(seconds)
    travelled = median(waited for _, waited in found[SAME_BUCKETS])
    for name, way in ways.items():
        found[name].append((way.simulated(megabits * 1e6 / 8 or inf), way.simulated(SENT_BYTES / travelled)))
    first, *others = ([each.detach() for each in way.model.parameters()] for way in ways.values())
    assert all(all(map(torch.equal, first, each)) for each in others), "the ways end with the same bits"
    dist.barrier()
    return found


def in_box(megabits: int, *, sleeps: bool) -> Seconds:
    """Seconds of two hosts of a box whose links have this rate; 0: both on loopback."""
    from tests.fabric.box.network import FabricBox  # its namespaces end with this process

    box = FabricBox(groups=1, hosts=2, uplinks=1, megabits=megabits or 1)
    hosts = ["a0", "a1"] if megabits else ["a0", "a0"]
    address = box.address("a0") if megabits else "127.0.0.1"

    def work(rank: int) -> Callable[[], Seconds]:
        def run() -> Seconds:
            os.environ["GLOO_SOCKET_IFNAME"] = "eth0" if megabits else "lo"
            return measure(rank, address, megabits, sleeps=sleeps)

        return run

    first, second = (box.start(host, work(rank)) for rank, host in enumerate(hosts))
    second.result()
    return first.result()  # type: ignore[no-any-return]  # as JSON carried it


def main() -> None:
    print(f"{platform.machine()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}, {TURNS} turns")
    print(f"{2 * BLOCKS} matrices, {SENT_BYTES / 1e6:.1f} MB of updates from each rank")
    columns = f"{'waited':>7}{'by link':>9}{'by travel':>11}"
    print(f"{'link':12}{'blocks':10}{'way':28}{'ms':>7}{'ratio':>7}  {'quartiles':14}{columns}")
    for megabits, sleeps in SCENES:
        command = ["unshare", "--net", "--mount", sys.executable, __file__, str(megabits), str(int(sleeps))]
        where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=where)
        found = json.loads(done.stdout.splitlines()[-1])
        base = next(iter(found.values()))
        for name, seconds in found.items():
            *turns, (by_link, by_travel) = seconds
            ratios = [each / other for (each, _), (other, _) in zip(turns, base, strict=False)]
            waits = f"{1000 * by_link:9.0f}{1000 * by_travel:11.0f}" if megabits else ""
            low, _, high = quantiles(ratios, n=4)
            link, blocks = f"{megabits} Mbit/s" if megabits else "loopback", "sleep" if sleeps else "compute"
            print(
                f"{link:12}{blocks:10}{name:28}{1000 * median(each for each, _ in turns):7.0f}{median(ratios):7.2f}  "
                f"{low:.2f} to {high:.2f}  {1000 * median(each for _, each in turns):7.0f}"
                f"{waits}"
            )
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(in_box(int(sys.argv[1]), sleeps=bool(int(sys.argv[2])))))
    else:
        main()
