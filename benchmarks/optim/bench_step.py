"""One step of matrix updates on two gloo ranks, scheme by scheme: `python benchmarks/optim/bench_step.py`.

Matrices are those of Qwen3-32B with each side over 16, four layers: 28 matrices, 7.6 M elements, float32. Each rank has
gradients of its own. Schemes differ in how these are summed and who computes which update; all end with the same bits,
which is checked. Numbers of each, ranks on one thread: seconds in the rule on the slower rank, processor seconds of its
whole step (all threads, the exchange included), bytes that a rank sends by the formula of a ring, wall milliseconds
(median and least of TURNS) and their ratio to the first scheme, in which every rank repeats all updates.

`torch.optim.Muon` on each rank is what its user has under DDP. It computes in bfloat16, so it has no bits to share with
the others; the same work of ours in bfloat16 is the pair to compare it with. Each turn is one step of every scheme, one
after the other, so that all meet the same load. The last lines judge target G.
"""

import multiprocessing
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.qwen3 import QWEN3

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.costs import CPU
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.rules.muon import Muon

RANKS, PART, LAYERS, TURNS = 2, 16, 4, 7
SHAPES = {
    each.fqn: (each.shape[0] // PART, each.shape[1] // PART)
    for each in QWEN3["32B"].matrices("split")
    if int(each.fqn.split(".")[1]) < LAYERS
}
REDUNDANT, CHOSEN = "every rank repeats all", "the plan's choice"
LEAST_GAIN, MOST_WALL = 1.8, 1.1
"""Target G: seconds in the rule where all is repeated over those of an owner; wall over that of the best scheme."""
SCHEMES: dict[str, dict[str, Any]] = {
    REDUNDANT: {"copies": False},
    CHOSEN: {},
    "G1 contiguous": {"geometry": "contiguous"},
    "G2 permuted": {"geometry": "permuted"},
    "G3 owner": {"geometry": "owner"},
    "G3, gradients to owners": {"geometry": "owner", "shares": True},
    "rows on hosts (FSDP2)": {"rows": True},
    "torch.optim.Muon on each": {"torch_own": True},
    "repeated in bfloat16": {"copies": False, "dtype": "bfloat16"},
    "the choice in bfloat16": {"dtype": "bfloat16"},
}
SAME_BITS = tuple(name for name, how in SCHEMES.items() if not {"torch_own", "dtype"} & how.keys())


def first_weights() -> dict[str, torch.Tensor]:
    """Weights that all ranks begin with."""
    torch.manual_seed(0)
    return {name: 0.02 * torch.randn(shape) for name, shape in SHAPES.items()}


class Scheme:
    """One way to make the step on this rank."""

    def __init__(
        self, copies: bool = True, shares: bool = False, rows: bool = False, torch_own: bool = False,
        dtype: str = "float32", **options: Any,
    ) -> None:  # fmt: skip
        self._mesh = init_device_mesh("cpu", (RANKS,)) if rows else None
        self.parameters = [torch.nn.Parameter(self._placed(each)) for each in first_weights().values()]
        self._gradients = [torch.randn(shape) for shape in SHAPES.values()]
        self._sent = 0.0
        self._torch_seconds = 0.0
        self._own: MatrixOptimizer | None = None
        if torch_own:
            self._torch = torch.optim.Muon(self.parameters, lr=0.02)
            return
        group = {"params": self.parameters, "names": list(SHAPES), "kind": "matrix"}
        self._own = MatrixOptimizer(
            [group], rule=Muon(lr=0.02, dtype=dtype), shares_state=shares,
            options=PlanOptions(**options, device=CPU), replicas=dist.group.WORLD if copies and not rows else None,
        )  # fmt: skip

    def step(self) -> None:
        """Sum the gradients of both ranks, update."""
        owners = self._own.executors[0].owners if self._own and self._own.reduction else {}
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            summed, share = gradient.clone(), gradient.nbytes * (RANKS - 1) / RANKS
            if self._own and parameter in owners:
                copies = self._own.executors[0].exchanges[1]
                copies.reduce(summed, owners[parameter]).wait()
                parameter.grad = summed if owners[parameter] == copies.place else None
            else:
                dist.all_reduce(summed)
                self._sent += share if self._mesh is not None else 2 * share  # shards are reduced and scattered
                parameter.grad = self._placed(summed)
        start = time.perf_counter()
        (self._own or self._torch).step()
        self._torch_seconds += time.perf_counter() - start

    @property
    def rule_seconds(self) -> float:
        """Seconds in the rule; torch's own has nothing else in its step, so all of that."""
        return (self._own.executors[0].compute_seconds or 0.0) if self._own else self._torch_seconds

    @property
    def sent_bytes(self) -> float:
        """Bytes that this rank sends: gradients, and updates as the executor counts them."""
        traffic = self._own.executors[0].traffic.values() if self._own else ()
        return self._sent + sum(each.sent_bytes for each in traffic)

    def whole(self) -> list[torch.Tensor]:
        """Weights, as one rank would have them."""
        return [each.full_tensor() if self._mesh is not None else each.detach() for each in self.parameters]

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._mesh is None else distribute_tensor(tensor, self._mesh, [Shard(0)], src_data_rank=None)


def rank_main(rank: int, folder: str, answers: Any) -> None:
    """Run all schemes on one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    schemes, reference, same = {}, None, {}
    for name, options in SCHEMES.items():
        torch.manual_seed(100 + rank)
        schemes[name] = Scheme(**options)
        schemes[name].step()
        weights = [each.clone() for each in schemes[name].whole()]
        reference = reference or weights
        same[name] = all(map(torch.equal, weights, reference))
    before = {name: each.sent_bytes for name, each in schemes.items()}
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in schemes}
    for _ in range(TURNS):
        for name, each in schemes.items():
            times[name].append(timed(each))
    answers.put((rank, {
        name: Figures(
            rule=median(rule for rule, _, _ in times[name]), processor=median(used for _, used, _ in times[name]),
            sent=(each.sent_bytes - before[name]) / TURNS, wall=[wall for _, _, wall in times[name]], same=same[name],
        )
        for name, each in schemes.items()
    }))  # fmt: skip
    dist.destroy_process_group()


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a step of one scheme takes on one rank."""

    rule: float
    """Seconds, in the median."""
    processor: float
    """Seconds, in the median."""
    sent: float
    """Bytes."""
    wall: list[float]
    """Milliseconds of each turn."""
    same: bool
    """Weights after one step have the bits of the first scheme."""


def timed(scheme: Scheme) -> tuple[float, float, float]:
    """Seconds in the rule, processor seconds and wall milliseconds of one step."""
    dist.barrier()
    rule, start, used = scheme.rule_seconds, time.perf_counter(), time.process_time()
    scheme.step()
    used = time.process_time() - used
    dist.barrier()
    return scheme.rule_seconds - rule, used, 1000 * (time.perf_counter() - start)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    print(f"{platform.machine()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}, {len(SHAPES)} matrices")
    with TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, folder, answers)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        found = dict(answers.get() for _ in ranks)
        for process in ranks:
            process.join()
    both = {name: slower(found[0][name], found[1][name]) for name in SCHEMES}
    base = median(both[REDUNDANT].wall)
    print(
        f"{'scheme':26}{'rule, s':>9}{'cpu, s':>8}{'sent, MB':>10}{'wall, ms':>10}{'least':>8}{'ratio':>7}  same bits"
    )
    for name, each in both.items():
        wall, same = median(each.wall), ("yes" if each.same else "NO") if name in SAME_BITS else "-"
        print(
            f"{name:26}{each.rule:9.3f}{each.processor:8.2f}{each.sent / 1e6:10.1f}{wall:10.0f}"
            f"{min(each.wall):8.0f}{wall / base:7.2f}  {same}"
        )
    print("\n".join(judged(both)))
    print(f"load at the end {os.getloadavg()[0]:.1f}")


def slower(one: Figures, other: Figures) -> Figures:
    """The larger figure of both ranks, for each; they end a turn together."""
    return Figures(
        rule=max(one.rule, other.rule), processor=max(one.processor, other.processor), sent=max(one.sent, other.sent),
        wall=one.wall, same=one.same and other.same,
    )  # fmt: skip


def judged(both: dict[str, Figures]) -> list[str]:
    """Target G, line by line; the best scheme is the fastest of those in float32."""
    walls = {name: median(both[name].wall) for name in SAME_BITS}
    best = min(walls, key=walls.__getitem__)
    gain, wall = both[REDUNDANT].rule / both[CHOSEN].rule, walls[CHOSEN] / walls[best]
    torchs = median(both["torch.optim.Muon on each"].wall) / median(both["the choice in bfloat16"].wall)
    return [
        f"G  seconds in the rule, repeated over {CHOSEN}: {gain:.2f}, wanted {LEAST_GAIN}: {_met(gain >= LEAST_GAIN)}",
        f"G  the same bits in {len(SAME_BITS)} schemes: {_met(all(both[name].same for name in SAME_BITS))}",
        f"G  wall of {CHOSEN} over that of {best!r}: {wall:.2f}, at most {MOST_WALL}: {_met(wall <= MOST_WALL)}",
        f"   wall of torch.optim.Muon on each over {CHOSEN} in bfloat16: {torchs:.2f}",
    ]


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


if __name__ == "__main__":
    main()
