"""Bytes of updates that ranks hold at the end of a step; runs on ranks."""

import gc
import time
import weakref

import torch
import torch.distributed as dist
from tests.optim.executors.overlapped import BUCKET, batch, built
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from gangline.optim.matrix_optimizer import _IN_FLIGHT, MatrixOptimizer
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.simulate import outstanding_bytes
from gangline.optim.plan.work import matrix_work
from gangline.optim.rules.muon import Muon
from gangline.planner.cost.optimizer import OptimizerModel
from gangline.spec.mesh import Mesh


class Storages(TorchDispatchMode):
    """Those that operations inside wrote; the profiler of torch dies now and then beside threads of gloo."""

    def __init__(self):
        super().__init__()
        self._found = WeakIdKeyDictionary(ref_type=weakref.ref)

    def settled(self):
        """Bytes of those that are there, once threads of gloo have let go of theirs."""
        found = []
        while len(found) < 5 or len(set(found[-5:])) > 1:
            time.sleep(0.002)
            gc.collect()
            found.append(sum(each.nbytes() for each in self._found))
        return found[-1]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(is_traceable_wrapper_subclass_type(each) for each in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._found[each.untyped_storage()] = None
        return result


def held(wrapped, geometry, *, overlap):
    """In storages that are gone once all is applied; by the plan; as the planner counts."""
    bucket = None if overlap and geometry != "permuted" else (1 + (geometry == "permuted")) * BUCKET
    _, outer, optimizer = built(overlap=overlap, wrapped=wrapped, bucket=bucket, geometry=geometry)
    found = []
    for step in range(2):
        outer(batch(step)).square().sum().backward()
        if optimizer.reduction is not None:
            optimizer.reduction.drop_foreign()
        with torch.no_grad(), Storages() as storages:
            begun = optimizer._begin_step(in_flight=None if overlap else _IN_FLIGHT)
        found.append(storages.settled())
        begun.wait()
        found[-1] -= storages.settled()
        optimizer.zero_grad()
    [plan] = optimizer.plans
    work = matrix_work(
        [each.matrix for each in plan.matrices], optimizer.rule.spec, plan.options
    )  # fmt: skip
    mesh = Mesh(dp_replicate=plan.ranks, dp_shard=plan.hosts)
    planner = OptimizerModel(matrix_work=work).held_bytes(mesh)
    return {"found": found, "plan": outstanding_bytes(plan), "planner": planner, "kind": plan.geometry}


def held_by(cases):
    gc.freeze()  # what is collected later is little
    return [held(wrapped, geometry, overlap=overlap) for wrapped, geometry, overlap in cases]


class Peak(TorchDispatchMode):
    """Bytes of storages that operations inside made, at most at one time; `known` were there before."""

    def __init__(self, known):
        super().__init__()
        self.bytes, self._now = 0, 0
        self._sizes = dict.fromkeys((each.untyped_storage()._cdata for each in known), 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(is_traceable_wrapper_subclass_type(each) for each in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and (key := each.untyped_storage()._cdata) not in self._sizes:
                self._sizes[key] = each.untyped_storage().nbytes()
                self._now += self._sizes[key]
                self.bytes = max(self.bytes, self._now)
                weakref.finalize(each.untyped_storage(), self._gone, key)
        return result

    def _gone(self, key):
        self._now -= self._sizes.pop(key)


class Halve(Muon):
    """Needs no memory beside its update."""

    def compute(self, batch, states, options, *, refresh):
        return batch * 0.5


def assembled(groups):
    """The most that a host has of matrices and updates in one step; as the planner counts."""
    hosts, side = dist.get_world_size(), 64
    size = 4 * side * side
    mesh = init_device_mesh("cpu", (hosts,))
    parameters = [
        torch.nn.Parameter(distribute_tensor(torch.randn(side, side), mesh, [Shard(0)])) for _ in range(groups * hosts)
    ]
    for each in parameters:
        each.grad = distribute_tensor(torch.randn(side, side), mesh, [Shard(0)])
    names = [f"w{at}" for at in range(len(parameters))]
    optimizer = MatrixOptimizer(
        [{"params": parameters, "names": names, "kind": "matrix"}], rule=Halve(dtype="float32"),
        options=PlanOptions(c_max_bytes=size),
    )  # fmt: skip
    optimizer.step()
    known = [
        each.to_local() if isinstance(each, DTensor) else each
        for one in parameters for each in (one.data, one.grad, *optimizer.state[one].values())
    ]  # fmt: skip
    found = []
    for _ in range(5):  # threads of gloo let go of what they sent when they are at it
        with torch.no_grad(), Peak(known) as peak:
            optimizer.step()
        found.append(peak.bytes)
    [plan] = optimizer.plans
    work = matrix_work(
        [each.matrix for each in plan.matrices], optimizer.rule.spec, plan.options
    )  # fmt: skip
    planner = OptimizerModel(matrix_work=work).update_bytes(Mesh(dp_shard=hosts))
    return {"found": min(found), "planner": planner, "groups": len(plan.groups[0]), "size": size}
