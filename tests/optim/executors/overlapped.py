"""A small stack of layers whose updates arrive during its forward pass; runs on ranks."""

from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from tests.optim.executors.layouts import RULES, Interrupted, full
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import linear
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from gangline.errors import ConfigError, TrainingError
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.routing import partition_params

WIDTH, BLOCKS = 6, 4
BUCKET = WIDTH * WIDTH
"""Elements of a bucket with one block."""


class Stack(torch.nn.Module):
    """Blocks between two layers that are none; `calls` says which ones a pass uses, and in what order."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))
        self.first, self.last = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.calls, self.recomputes, self.reads_weights = list(range(BLOCKS)), False, False

    def forward(self, x):
        x = self.first(x)
        for at in self.calls:
            x = x + torch.tanh(self._through(self.blocks[at], x))
        return self.last(x)

    def _through(self, block, x):
        if self.reads_weights:
            return linear(x, block.weight, block.bias)
        return checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)


def built(*, overlap, wrapped="ddp", rule="muon", between="plain", bucket=BUCKET, geometry="auto"):
    """Model, what wraps it, optimizer."""
    torch.manual_seed(3)
    model = Stack()
    if between == "tied":
        model.blocks[3].weight = model.blocks[0].weight
    if between == "compiled":
        for each in model.blocks:
            each.compile(backend="eager")
    model.reads_weights = between == "weights_read"
    outer = model if wrapped == "hsdp" else DistributedDataParallel(model, find_unused_parameters=between == "skipped")
    if wrapped == "hsdp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        for each in (*model.blocks, model):
            fully_shard(each, mesh=mesh)
    optimizer = MatrixOptimizer(
        partition_params(model), rule=RULES[rule](), replicas=None if wrapped == "hsdp" else dist.group.WORLD,
        shares_state=wrapped == "zero1",
        options=PlanOptions(
            overlap="forward" if overlap else "off", bucket_elements=bucket, geometry=geometry
        ),
    )  # fmt: skip
    if optimizer.reduction is not None:
        outer.register_comm_hook(None, optimizer.reduction.average)
    if overlap:
        optimizer.overlap_forward(outer, units=model.blocks)
    return model, outer, optimizer


def batch(step, *, of=None):
    torch.manual_seed(100 * step + (dist.get_rank() if of is None else of))
    return torch.randn(3, WIDTH)


def plain(model, optimizer, step):
    """Nothing happens between two steps."""


tied = compiled = weights_read = plain
"""Of `built`."""


def evaluated_on_one_rank(model, optimizer, step):
    """The other one goes on."""
    if dist.get_rank() == 0:
        with torch.inference_mode():
            return [model(batch(step, of=9)).clone()]
    return []


def evaluated_without_gradients(model, optimizer, step):
    with torch.no_grad():
        return [model(batch(step, of=9))]


def failed_on_one_rank(model, optimizer, step):
    """Its pass ends before a block; the next pass is whole."""
    if dist.get_rank() == 1:
        with suppress(IndexError):
            model.calls = [0, 1, BLOCKS]
            model(batch(step))
        model.calls = list(range(BLOCKS))


def skipped(model, optimizer, step):
    """On one rank, some blocks."""
    model.calls = [0, 3] if dist.get_rank() == step % 2 else list(range(BLOCKS))


def called_in_another_order(model, optimizer, step):
    model.calls = list(range(BLOCKS))[:: -1 if (dist.get_rank() + step) % 2 else 1]


def recomputed(model, optimizer, step):
    model.recomputes = True


def called_alone(model, optimizer, step):
    """A block without its model."""
    return [model.blocks[2](batch(step))]


def saved(model, optimizer, step):
    """Weights, and state as of the end of the step."""
    found = [full(each) for each in model.state_dict().values()]
    optimizer.load_state_dict(optimizer.state_dict())
    return found


def loaded(model, optimizer, step):
    """Other weights: what was outstanding is no part of them."""
    model.load_state_dict({name: torch.full_like(each, 0.1 * step) for name, each in model.named_parameters()})


def scheduled(model, optimizer, step):
    """The rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


def waited(model, optimizer, step):
    optimizer.wait()
    return [each.detach().clone() for each in model.parameters()]


BETWEEN = {
    each: globals()[each]
    for each in (
        "plain", "tied", "compiled", "weights_read", "evaluated_on_one_rank", "evaluated_without_gradients",
        "failed_on_one_rank", "skipped", "called_in_another_order", "recomputed", "called_alone", "saved", "loaded",
        "scheduled", "waited",
    )
}  # fmt: skip


def trained(between="plain", *, overlap, steps=4, **options):
    """Outputs of every pass and weights at the end; whether a step left updates to the next pass."""
    model, outer, optimizer = built(overlap=overlap, between=between, **options)
    found, arrives = [], False
    for step in range(steps):
        found.extend(BETWEEN[between](model, optimizer, step) or [])
        outputs = outer(batch(step))
        assert optimizer.is_whole
        found.append(outputs.detach().clone())
        outputs.square().sum().backward()
        if optimizer.reduction is not None:
            optimizer.reduction.drop_foreign()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        arrives = arrives or not optimizer.is_whole
    optimizer.wait()
    return {"seen": [*found, *(full(each) for each in model.parameters())], "arrives": arrives}


def trained_both_ways(cases):
    """Each case with overlap and without."""
    return [[trained(overlap=overlap, **case) for overlap in (True, False)] for case in cases]


def step_of(model, outer, optimizer, step):
    outer(batch(step)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def blocks_that_found_updates_outstanding(bucket):
    """By block, as it is called in the pass after a step."""
    model, outer, optimizer = built(overlap=True, bucket=bucket)
    step_of(model, outer, optimizer, 0)
    found = []
    for each in model.blocks:
        each.register_forward_pre_hook(lambda *_: found.append(not optimizer.is_whole))
    outer(batch(1))
    return found


def waited_on_one_rank():
    """Did rank 0 end while rank 1 did nothing but wait for that end?"""
    model, outer, optimizer = built(overlap=True)
    store = distributed_c10d._get_default_store()
    step_of(model, outer, optimizer, 0)
    if dist.get_rank() == 0:
        optimizer.wait()
        store.set("ended", "")
        return True
    try:
        store.wait(["ended"], timedelta(seconds=5))
    except RuntimeError:
        return False
    finally:
        optimizer.wait()
    return True


def waited_by_hand():
    """Weights after `step`, and after `step_async` with gradients gone before `wait`; whether these differed before."""
    model, outer, optimizer = built(overlap=False)
    other, _, beside = built(overlap=False)
    outer(batch(0)).square().sum().backward()
    for each, copy in zip(model.parameters(), other.parameters(), strict=True):
        copy.grad = each.grad.clone()
    optimizer.step()
    outstanding = beside.step_async()
    for copy in other.parameters():
        copy.grad.fill_(float("nan"))
    before = [each.detach().clone() for each in other.parameters()]
    outstanding.wait()
    outstanding.wait()
    left, right = ([each.detach().clone() for each in one.parameters()] for one in (model, other))
    return {"wanted": left, "found": right, "changed": not all(map(torch.equal, before, right))}


def interrupted_while_updates_arrive():
    """The optimizer after an error in the middle, and what its next call says."""
    model, outer, optimizer = built(overlap=True, rule="whiten")
    step_of(model, outer, optimizer, 0)

    def fail(*_):
        raise Interrupted

    optimizer.rule.apply = fail
    with suppress(Interrupted):
        model(batch(1))
    try:
        model(batch(1))
    except TrainingError as error:
        return {"whole": optimizer.is_whole, "error": str(error)}
    return {"whole": optimizer.is_whole, "error": ""}


def _error(call):
    try:
        call()
    except ConfigError as error:
        return str(error)
    return ""


def refusals():
    """Of what cannot work."""
    model, _, off = built(overlap=False)
    _, _, twice = built(overlap=True)
    options = PlanOptions(overlap="forward")
    optimizer = MatrixOptimizer(
        partition_params(model), rule=RULES["muon"](), replicas=dist.group.WORLD, options=options
    )  # fmt: skip
    found = [
        _error(lambda: off.overlap_forward(model, units=model.blocks)),
        _error(lambda: twice.overlap_forward(model, units=model.blocks)),
        _error(lambda: optimizer.overlap_forward(model, units=[torch.nn.Linear(2, 2)])),
        _error(lambda: optimizer.overlap_forward(model.first, units=[])),
    ]
    optimizer.overlap_forward(model, units=model.blocks)
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    return [*found, _error(optimizer.step)]
