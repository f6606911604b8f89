"""One step of matrix updates on two gloo ranks, scheme by scheme: `python benchmarks/optim/bench_step.py`.

Matrices are those of Qwen3-32B with each side over 16, four layers: 28 matrices, 7.6 M elements, float32. Each rank has
gradients of its own. Schemes differ in how these are summed and who computes which update; all end with the same bits,
which is checked. Three numbers each, ranks on one thread: seconds in the rule on the slower rank, bytes that a rank
sends by the formula of a ring, wall milliseconds (median and least of TURNS) and their ratio to the first scheme,
in which every rank repeats all updates.
"""

import multiprocessing
import os
import platform
import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.costs import CPU
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.shapes import QWEN3
from gangline.optim.rules.muon import Muon

RANKS, PART, LAYERS, TURNS = 2, 16, 4, 7
SHAPES = {
    each.fqn: (each.shape[0] // PART, each.shape[1] // PART)
    for each in QWEN3["32B"].matrices("split")
    if int(each.fqn.split(".")[1]) < LAYERS
}
SCHEMES: dict[str, dict[str, Any]] = {
    "every rank repeats all": {"copies": False},
    "G1 contiguous": {"geometry": "contiguous"},
    "G2 permuted": {"geometry": "permuted"},
    "G3 owner": {"geometry": "owner"},
    "G3, gradients to owners": {"geometry": "owner", "shares": True},
    "rows on hosts (FSDP2)": {"rows": True},
}


def first_weights() -> dict[str, torch.Tensor]:
    """Of all ranks."""
    torch.manual_seed(0)
    return {name: 0.02 * torch.randn(shape) for name, shape in SHAPES.items()}


class Scheme:
    """One way to make the step on this rank."""

    def __init__(self, copies: bool = True, shares: bool = False, rows: bool = False, **options: Any) -> None:
        self._mesh = init_device_mesh("cpu", (RANKS,)) if rows else None
        weights = first_weights().values()
        self.parameters = [torch.nn.Parameter(self._placed(each)) for each in weights]
        group = {"params": self.parameters, "names": list(SHAPES), "kind": "matrix"}
        self.optimizer = MatrixOptimizer(
            [group], rule=Muon(lr=0.02, dtype="float32"), shares_state=shares,
            options=PlanOptions(**options, device=CPU), replicas=dist.group.WORLD if copies and not rows else None,
        )  # fmt: skip
        self._gradients = [torch.randn(shape) for shape in SHAPES.values()]
        self.sent = 0.0
        """Bytes of gradients by this rank; those of updates are counted by the executor."""

    def step(self) -> None:
        """Sum the gradients of both ranks, update."""
        owners = self.optimizer.executors[0].owners if self.optimizer.reduction else {}
        copies = self.optimizer.executors[0].exchanges[1]
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            summed, share = gradient.clone(), gradient.nbytes * (RANKS - 1) / RANKS
            if parameter in owners:
                copies.reduce(summed, owners[parameter]).wait()
                parameter.grad = summed if owners[parameter] == copies.place else None
            else:
                dist.all_reduce(summed)
                self.sent += share if self._mesh is not None else 2 * share  # shards are reduced and scattered
                parameter.grad = self._placed(summed)
        self.optimizer.step()

    def whole(self) -> list[torch.Tensor]:
        """Weights, as one rank would have them."""
        return [each.full_tensor() if self._mesh is not None else each.detach() for each in self.parameters]

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._mesh is None else distribute_tensor(tensor, self._mesh, [Shard(0)], src_data_rank=None)


def rank_main(rank: int, folder: str, answers: Any) -> None:
    """Run all schemes on one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    found, reference = {}, None
    for name, options in SCHEMES.items():
        torch.manual_seed(100 + rank)
        found[name], weights = timed(Scheme(**options))
        reference = reference or weights
        found[name]["same bits"] = all(map(torch.equal, weights, reference))
    answers.put((rank, found))
    dist.destroy_process_group()


def timed(scheme: Scheme) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Numbers of one scheme, and its weights after as many steps as all schemes make."""
    executor = scheme.optimizer.executors[0]
    scheme.step()
    weights = [each.clone() for each in scheme.whole()]

    def counted() -> float:
        return scheme.sent + sum(each.sent_bytes for each in executor.traffic.values())

    before, rule, wall = counted(), executor.compute_seconds or 0.0, []
    for _ in range(TURNS):
        dist.barrier()
        start = time.perf_counter()
        scheme.step()
        dist.barrier()
        wall.append(1000 * (time.perf_counter() - start))
    return {
        "rule": ((executor.compute_seconds or 0.0) - rule) / TURNS, "sent": (counted() - before) / TURNS, "wall": wall,
    }, weights  # fmt: skip


def main() -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    print(f"{platform.machine()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}, {len(SHAPES)} matrices")
    with TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, folder, answers)) for rank in range(RANKS)]
        for each in ranks:
            each.start()
        found = dict(answers.get() for _ in ranks)
        for each in ranks:
            each.join()
    base = median(found[0][next(iter(SCHEMES))]["wall"])
    print(f"{'scheme':26}{'rule, s':>9}{'sent, MB':>10}{'wall, ms':>10}{'least':>8}{'ratio':>7}  same bits")
    for name in SCHEMES:
        rule, sent = (max(each[name][key] for each in found.values()) for key in ("rule", "sent"))
        wall = found[0][name]["wall"]
        same = all(each[name]["same bits"] for each in found.values())
        print(
            f"{name:26}{rule:9.3f}{sent / 1e6:10.1f}{median(wall):10.0f}{min(wall):8.0f}"
            f"{median(wall) / base:7.2f}  {'yes' if same else 'NO'}"
        )
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
