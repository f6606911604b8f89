"""What a plan expects of its busiest rank, by measured costs, against what that rank computes."""

import time
from statistics import median

import pytest
import torch
import torch.distributed as dist
from tests.train.parallel.compress.ranks import on_ranks
from tools.qwen3 import QWEN3
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from gangline.measure.matrix_costs import cost_table
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.simulate import simulate
from gangline.optim.plan.work import device_curve
from gangline.optim.rules.muon import Muon

WITHIN = 0.10
SHAPES = {
    each.fqn: (each.shape[0] // 16, each.shape[1] // 16)
    for each in QWEN3["32B"].matrices("split")
    if int(each.fqn.split(".")[1]) < 2
}
STEPS = 7


def computed(layout, table):
    """Seconds that the plan has for the busiest rank, and this rank's own in the rule, in the median of steps."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if layout == "rows" else None
    weights = [torch.randn(shape) for shape in SHAPES.values()]
    parameters = [torch.nn.Parameter(distribute_tensor(each, mesh, [Shard(0)]) if mesh else each) for each in weights]
    group = {"params": parameters, "names": list(SHAPES), "kind": "matrix"}
    device = device_curve("cpu", table)
    optimizer = MatrixOptimizer(
        [group], rule=_Timed(dtype="float32"), options=PlanOptions(device=device, c_max_bytes=4_000_000),
        replicas=None if mesh else dist.group.WORLD,
    )  # fmt: skip
    reported = []
    for _ in range(STEPS):
        for parameter in parameters:
            parameter.grad = parameter.detach().clone()
        _Timed.seconds = 0.0
        optimizer.step()
        reported.append(_Timed.seconds)
    return simulate(optimizer.executors[0].plan).compute_seconds, median(reported)


class _Timed(Muon):
    seconds = 0.0

    def compute(self, *arguments, **named):
        start = time.thread_time()
        found = super().compute(*arguments, **named)
        _Timed.seconds += time.thread_time() - start
        return found


def table_on_a_rank():
    return cost_table(Muon(dtype="float32"), list(SHAPES.values()), torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_busiest_rank_computes_as_long_as_planned(size):
    """Costs are measured on as many ranks as train, since they share caches; the seconds are those of threads."""
    table = on_ranks(size, table_on_a_rank)[0]
    for layout in ("copies", "rows"):
        found = on_ranks(size, computed, layout, table)
        planned, busiest = found[0][0], max(seconds for _, seconds in found)
        print(f"{layout} on {size}: planned {planned:.4f} s, the busiest rank computed {busiest:.4f} s")
        assert busiest == pytest.approx(planned, rel=WITHIN), layout
