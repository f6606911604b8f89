"""A few parameters under every layout, stepped with gradients that are the same bits everywhere; runs on ranks."""

import time
from contextlib import suppress
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from gangline.errors import ConfigError, NonFiniteError, TrainingError
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.costs import ShampooSpec
from gangline.optim.plan.matrix import FragmentSplit
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.routing import partition_params
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.optim.torch_muon import load_torch_muon

SHAPES = {
    "a.weight": (12, 7),
    "b.weight": (7, 12),
    "few": (3, 5),
    "row": (1, 9),
    "gates": (10, 6),
    "qkv": (16, 6),
    "experts": (3, 4, 6),
}
SPLITS = {
    "gates": FragmentSplit(kind="gate_up_interleaved"),
    "qkv": FragmentSplit(kind="qkv_by_group", heads=4, kv_heads=2, head_dim=2),
    "experts": FragmentSplit(kind="stack"),
}
MATRICES = 4 + 2 + 3 + 3


class Whiten:
    """A rule for tests: sharded momentum, a factor at the owner, an update that needs the whole matrix."""

    class _Spec(ShampooSpec):
        def state(self, shape):
            return {
                "momentum": (shape, "float32", "sharded"),
                "factor": ((shape[0], shape[0]), "float32", "owner"),
            }

    def __init__(self, every=1):
        self.spec, self.defaults = self._Spec(refresh_every=every), {"lr": 0.1, "weight_decay": 0.1}

    def prepare(self, gradient, state, options):
        return state["momentum"].mul_(0.9).add_(gradient).clone()

    def compute(self, batch, states, options, *, refresh):
        found = []
        for matrix, state, is_due in zip(batch, states, refresh, strict=True):
            unit = matrix / (matrix.norm() + 1e-7)
            if is_due:
                state["factor"].add_(unit @ unit.T)
            found.append(1.5 * unit - 0.5 * unit @ unit.T @ unit + 0.1 * state["factor"] @ unit)
        return torch.stack(found)

    def apply(self, parameter, update, options, shape):
        parameter.mul_(1 - options["lr"] * options["weight_decay"])
        parameter.add_(update, alpha=-options["lr"] * max(1, shape[0] / shape[1]) ** 0.5)


RULES = {
    "whiten": Whiten, "muon": partial(Muon, dtype="float32"), "gram": partial(Muon, dtype="float32", kernel="gram"),
    "shampoo": partial(Shampoo, refresh_every=2),
    "soap": partial(Soap, refresh_every=2),
}  # fmt: skip


def _placed(full, layout):
    """`full` as a parameter of the layout."""
    if layout in ("local", "copies", "owned"):
        return torch.nn.Parameter(full.clone())
    if layout in ("rows", "columns"):
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        placements = [Shard(0 if layout == "rows" else 1)]
    else:
        mesh = init_device_mesh("cpu", (2, 2))
        placements = {"hsdp": [Replicate(), Shard(0)], "both": [Shard(0), Shard(1)], "twice": [Shard(0), Shard(0)]}[
            layout
        ]
    return torch.nn.Parameter(distribute_tensor(full, mesh, placements, src_data_rank=None))


def make(layout, *, rule="whiten", shapes=SHAPES, **options):
    """Parameters by name, and their optimizer."""
    torch.manual_seed(7)
    found = {name: _placed(torch.randn(shape), layout) for name, shape in shapes.items()}
    found["bias"] = _placed(torch.randn(5, 3), layout)
    names = list(shapes)
    groups = [
        {
            "params": [found[name] for name in names],
            "names": names,
            "kind": "matrix",
            "splits": {name: SPLITS[name] for name in names if name in SPLITS},
        },
        {"params": [found["bias"]], "names": ["bias"], "kind": "elementwise", "lr": 0.05},
    ]
    arguments = {key: options.pop(key) for key in ("non_finite",) if key in options}
    optimizer = MatrixOptimizer(
        groups, rule=RULES[rule](), replicas=dist.group.WORLD if layout in ("copies", "owned") else None,
        options=PlanOptions(**options), shares_state=layout == "owned", **arguments,
    )  # fmt: skip
    return found, optimizer


def gradient(name, shape, step):
    generator = torch.Generator().manual_seed(1000 * step + sum(map(ord, name)))
    return torch.randn(shape, generator=generator)


def give_gradients(parameters, step, *, missing=()):
    for name, each in parameters.items():
        full = gradient(name, each.shape, step)
        if name in missing:
            each.grad = None
        elif isinstance(each, DTensor):
            each.grad = distribute_tensor(full, each.device_mesh, each.placements, src_data_rank=None)
        else:
            each.grad = full


def full(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def stepped(layout, steps=4, options=None):
    """Parameters after some steps, and what the executors counted."""
    parameters, optimizer = make(layout, **(options or {}))
    for step in range(steps):
        give_gradients(parameters, step)
        optimizer.step()
    executor = optimizer.executors[0]
    return {
        "parameters": {name: full(each) for name, each in parameters.items()},
        "momentum": {name: full(state["momentum"]) for name, each in parameters.items()
                     if "momentum" in (state := optimizer.state[each])},
        "owner": {f"{name}/{key}": value.clone() for name, each in parameters.items()
                  for key, value in optimizer.state[each].items()
                  if any(word in key for word in ("factor", "root", "basis"))},
        "computed": executor.computed, "geometry": executor.plan.geometry,
        "groups": len(executor.plan.groups[0]),
        "padding": executor.traffic["copies"].padding_bytes, "sent": executor.traffic["copies"].sent_bytes,
    }  # fmt: skip


def stepped_by_each(cases):
    """`stepped` of each layout with its options, one after the other in one process group."""
    return [stepped(layout, 4, options) for layout, options in cases]


def step_without(layout, missing_on):
    """One step where ranks lack gradients: `missing_on` has the ranks by parameter."""
    parameters, optimizer = make(layout)
    before = {name: full(each) for name, each in parameters.items()}
    give_gradients(parameters, 0, missing=[name for name, ranks in missing_on.items() if dist.get_rank() in ranks])
    optimizer.step()
    return {name: torch.equal(full(each), before[name]) for name, each in parameters.items()}


def momentum_of_torch(layout, placed):
    """Names whose momentum, taken over from `torch.optim.Muon`, is that which was saved; and what this rank keeps.

    `placed`: the buffers are saved in the layout of the parameters, not whole.
    """
    parameters, optimizer = make(layout, rule="muon")
    buffers = {name: gradient(name, shape, 9) for name, shape in SHAPES.items()}
    saved = [_placed(each, layout).detach() if placed else each for each in buffers.values()]
    state = {at: {"momentum_buffer": each} for at, each in enumerate(saved)}
    load_torch_muon(optimizer, {"state": state, "param_groups": [{"params": [*state]}]}, [*SHAPES])
    kept = {name: optimizer.state[parameters[name]] for name in SHAPES}
    kept = {name: full(each["momentum"]) for name, each in kept.items() if "momentum" in each}
    return {name for name, each in kept.items() if torch.equal(each, buffers[name])}, set(kept)


def step_with_nan(layout, non_finite, where="qkv"):
    """Names that changed by a step in which one rank has NaN in the gradient of `where`, or the error."""
    parameters, optimizer = make(layout, non_finite=non_finite)
    before = {name: full(each) for name, each in parameters.items()}
    momentum = {name: full(optimizer.state[each]["momentum"]) for name, each in parameters.items() if name != "bias"}
    give_gradients(parameters, 0)
    if dist.get_rank() == 1:
        grad = parameters[where].grad
        (grad.to_local() if isinstance(grad, DTensor) else grad).view(-1)[0] = float("nan")
    error = ""
    try:
        optimizer.step()
    except NonFiniteError as raised:
        error = str(raised)
    changed = [name for name, each in parameters.items() if not torch.equal(full(each), before[name])]
    kept = torch.equal(full(optimizer.state[parameters["qkv"]]["momentum"]), momentum["qkv"])
    return {"changed": changed, "error": error, "kept": kept}


def plan_hash(shuffled_on):
    """Hash of the plan where one rank names its parameters in another order; or the error of unequal options."""
    torch.manual_seed(7)
    names = list(SHAPES)
    if dist.get_rank() == shuffled_on:
        names.reverse()
    groups = [{
        "params": [torch.nn.Parameter(torch.zeros(SHAPES[name])) for name in names], "names": names, "kind": "matrix",
        "splits": dict(SPLITS),
    }]  # fmt: skip
    return MatrixOptimizer(groups, rule=Whiten(), replicas=dist.group.WORLD).plans[0].plan_hash


def unequal_plans():
    """The error of ranks with unequal options."""
    group = {"params": [torch.nn.Parameter(torch.zeros(4, 3))], "names": ["w"], "kind": "matrix"}
    options = PlanOptions(c_max_bytes=1000 + dist.get_rank())
    try:
        MatrixOptimizer([group], rule=Whiten(), replicas=dist.group.WORLD, options=options)
    except ConfigError as error:
        return str(error)
    return ""


class Interrupted(Exception):
    """For a step that ends in the middle."""


def interrupted_step():
    """Is the optimizer whole before, within and after a step that a rule ends?"""
    parameters, optimizer = make("local")
    give_gradients(parameters, 0)
    seen = [optimizer.is_whole]
    optimizer.step()
    seen.append(optimizer.is_whole)

    def fail(*_, **__):
        raise Interrupted

    optimizer.rule.compute = fail
    give_gradients(parameters, 1)
    with suppress(Interrupted):
        optimizer.step()
    return [*seen, optimizer.is_whole]


def reduced_by_ddp(shares, steps=3, bias=True):
    """Weights after some steps of DDP with and without its gradients reduced to owners; what was sent for that."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(12, 20, bias=bias), torch.nn.Tanh(), torch.nn.Linear(20, 12, bias=False)
    )
    wrapped = DistributedDataParallel(model)
    groups = partition_params(model)
    optimizer = MatrixOptimizer(groups, rule=Whiten(), replicas=dist.group.WORLD, shares_state=shares)
    if shares:
        wrapped.register_comm_hook(None, optimizer.reduction.average)
    for step in range(steps):
        torch.manual_seed(100 * step + dist.get_rank())
        wrapped(torch.randn(4, 12)).square().sum().backward()
        if shares:
            optimizer.reduction.drop_foreign()
        optimizer.step()
        optimizer.zero_grad()
    copies = optimizer.executors[0].traffic["copies"]
    held = sum(each.numel() for state in optimizer.state.values() for key, each in state.items() if key == "momentum")
    return {"weights": [each.detach().clone() for each in model.parameters()], "sent": copies.sent_bytes, "held": held}


def waited_for(slow_rank, seconds):
    """What each rank stood still for others in one step, where one rank computes slowly."""
    parameters, optimizer = make("copies")
    give_gradients(parameters, 0)
    optimizer.step()
    if dist.get_rank() == slow_rank:
        compute = optimizer.rule.compute

        def slowly(*arguments, **named):
            time.sleep(seconds / optimizer.executors[0].computed)
            return compute(*arguments, **named)

        optimizer.rule.compute = slowly
    before = optimizer.waited_seconds
    give_gradients(parameters, 1)
    optimizer.step()
    return optimizer.waited_seconds - before


def lost_updates():
    """The error of each rank after a step in which one rank computed nothing."""
    parameters, optimizer = make("copies")
    if dist.get_rank() == 1:
        optimizer.executors[0]._updates.compute = lambda whole: {
            at: torch.zeros_like(each) for at, each in whole.items()
        }
    give_gradients(parameters, 0)
    try:
        optimizer.step()
    except TrainingError as error:
        return str(error)
    return ""
