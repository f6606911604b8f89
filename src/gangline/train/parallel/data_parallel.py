"""Data parallelism: DDP, FSDP2, replication of tensor-parallel modules, and the protocol of a wrapped model."""

import warnings
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from gangline.errors import ConfigError
from gangline.spec.plan import Precision
from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.call_order import BlockCalls
from gangline.train.parallel.compress.factory import DdpHook, ShardHook
from gangline.train.parallel.model_parts import listed
from gangline.train.parallel.precision import shard_policy
from gangline.train.runtime.torch_compat import (
    DefaultAllGather,
    DefaultReduceScatter,
    GradBucket,
    fsdp_collectives,
    queue_callback,
    replicate,
)


class ParallelModel(Protocol):
    """A wrapped model as the loop sees it."""

    model: nn.Module
    """The module to call."""
    bare: nn.Module
    """The module to save: names without a wrapper's prefix; of a pipeline only this rank's part."""
    sharded: bool = False
    """Whether it is wrapped by `fully_shard`, which casts by itself."""

    def set_sync(self, last: bool) -> None:  # noqa: ARG002  here nothing is reduced in it
        """Called before the forward pass of a micro-batch; gradients are reduced only after the last one of a step."""
        return

    def watch(self, loss: Tensor) -> None:  # noqa: ARG002  here nothing waits in it
        """Called before its backward pass, whose waiting is measured."""
        return

    def backward_done(self) -> None:
        """Called after that backward pass."""
        return


class SingleRank(ParallelModel):
    """The model on one rank."""

    def __init__(self, model: nn.Module) -> None:
        self.model = self.bare = model


class Replicated(ParallelModel):
    """DDP: full copies; gradients are averaged in buckets during the backward pass."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, bucket_bytes: int | None, waits: WaitMeter,
        group: ProcessGroup | None = None, hook: DdpHook | None = None, skips: bool = False,
    ) -> None:  # fmt: skip
        """Args:
        group: Ranks that hold copies; None: the whole gang.
        hook: Averages buckets instead of DDP.
        skips: Some losses do not use all parameters: DDP searches each step for unused ones.
        """
        self.bare = model
        self.model = self._ddp = DistributedDataParallel(
            model,
            process_group=group,
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=bucket_bytes / 2**20 if bucket_bytes else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=skips,
            init_sync=False,  # every rank has the same initial weights
        )
        self._ddp.broadcast_buffers = False  # `buffers` has one rule for all strategies
        if hook is not None:
            self._ddp.register_comm_hook(None, hook)
        self._waits = waits
        self._skips = skips
        self._loss: Tensor | None = None
        """Loss of the current backward pass, if its gradients are averaged."""

    def reduce_by(self, hook: DdpHook) -> None:
        """Let `hook` reduce buckets of gradients, before the first backward pass; what it blocks counts as waiting."""

        def reduce_bucket(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            with self._waits.timed():
                return hook(state, bucket)

        self._ddp.register_comm_hook(None, reduce_bucket)

    def set_sync(self, last: bool) -> None:
        self._ddp.require_backward_grad_sync = last

    def watch(self, loss: Tensor) -> None:
        """Queue a callback that runs when all is computed, before DDP's own, which waits."""
        if self._ddp.require_backward_grad_sync and not self._skips:
            self._loss = loss
        computed = self._waits.computed  # a hook that holds `self`, which holds the loss, is never collected
        loss.register_hook(lambda _: queue_callback(computed))  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def backward_done(self) -> None:
        """Require that all gradients were reduced.

        Raises:
            ConfigError: Parameters have no gradient: DDP of other ranks may wait for them.
        """
        loss, self._loss = self._loss, None
        if loss is None:
            return
        try:
            self._ddp.reducer._check_reducer_finalized()  # noqa: SLF001  # else it says so a step later, in other words
        except RuntimeError:
            require_all_used(loss, self.bare)
            raise


def require_all_used(loss: Tensor, model: nn.Module) -> None:
    """Refuse parameters of `model` that require gradients and that `loss` does not depend on.

    Raises:
        ConfigError: With their names.
    """
    seen, todo, used = set[Any](), [loss.grad_fn], set[int]()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        used.add(id(getattr(node, "variable", None)))
        todo.extend(following for following, _ in node.next_functions)
    unused = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and id(parameter) not in used
    ]
    if unused:
        raise ConfigError(
            f"train.strategy: DDP waits for the gradient of every parameter, and {listed(unused, most=3)} take no "
            'part in the loss; remove them from the model, set requires_grad_(False), or use "fsdp"; if only some data '
            "use them, ParallelHints(skips=True) searches every step for unused ones"
        )


class Sharded(ParallelModel):
    """FSDP2: parameters, gradients and optimizer state in shards; a block is whole only while it computes."""

    sharded = True

    def __init__(self, model: nn.Module, calls: BlockCalls | None = None, *, reduces_each: bool = False) -> None:
        """Args:
        model: Wrapped by `shard`, block by block and as a whole.
        calls: Records its blocks.
        reduces_each: Gradients are reduced after each micro-batch: no rank holds them whole between two.
        """
        self.model = self.bare = model
        self._root, self._calls, self._reduces_each = cast(FSDPModule, model), calls, reduces_each

    def set_sync(self, last: bool) -> None:
        self._root.set_requires_gradient_sync(last or self._reduces_each)
        self._root.set_requires_all_reduce(last)  # replicas may have unlike numbers of micro-batches
        if self._calls is not None:
            self._calls.begin()

    def watch(self, loss: Tensor) -> None:
        """Require that this rank called its blocks as the other ranks did.

        Raises:
            ConfigError: It did not.
        """
        del loss
        if self._calls is not None:
            self._calls.require_usual()


def shard(
    module: nn.Module, mesh: DeviceMesh, *, precision: Precision, reshard: bool, is_root: bool, waits: WaitMeter,
    reduce: torch.dtype = torch.float32, hook: ShardHook | None = None, offload: OffloadPolicy | None = None,
) -> None:  # fmt: skip
    """Shard the parameters of `module` that no inner call sharded, in place; all ranks must call.

    With `reshard` they are whole only during its passes, except the root's, which backward needs at once. Gradients are
    averaged over `mesh` in the precision `reduce`, then by `hook` among the replicas that `mesh` does not contain.
    """
    warnings.filterwarnings("ignore", message=VIEW_WARNING)
    policy = shard_policy(precision, is_root=is_root, reduce=reduce)
    fully_shard(
        module, mesh=mesh, mp_policy=policy, reshard_after_forward=None if reshard else False,
        offload_policy=offload or OffloadPolicy(),
    )  # fmt: skip
    sharded = cast(FSDPModule, module)
    if hook is not None:
        sharded.set_all_reduce_hook(hook)
    if mesh.device_type == "cpu" and mesh.size() > 1:
        time_shards(sharded, waits)


VIEW_WARNING = r"FSDP2-wrapped module \(.*\) returned a view tensor"
"""Warning about any model that ends in a reshape; only changing the output in place would be wrong."""


def replicate_module(
    module: nn.Module, mesh: DeviceMesh, *, precision: Precision, is_root: bool, reduce: torch.dtype = torch.float32
) -> None:
    """Average gradients that no inner call averages over `mesh`, in the precision `reduce`; all ranks must call."""
    warnings.filterwarnings("ignore", message=VIEW_WARNING)
    replicate(module, mesh=mesh, mp_policy=shard_policy(precision, is_root=is_root, reduce=reduce))


def time_shards(module: FSDPModule, waits: WaitMeter) -> None:
    """Count the time in which `module` gathers parameters and scatters gradients as waiting."""
    module.set_custom_all_gather(_AllGather(waits))
    module.set_custom_reduce_scatter(_ReduceScatter(waits))


def time_replicas(waits: WaitMeter) -> None:
    """Count the time of FSDP2's averages among replicas as waiting, for the life of this process."""
    fsdp_collectives.dist = _Distributed(waits)  # type: ignore[attr-defined,assignment]  # replaces that module


class _AllGather(DefaultAllGather):
    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._waits.timed():
            return super().__call__(*args, **kwargs)


class _ReduceScatter(DefaultReduceScatter):
    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._waits.timed():
            return super().__call__(*args, **kwargs)


class _Distributed:
    """`torch.distributed` as FSDP2 sees it."""

    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    def all_reduce(self, *args: Any, **kwargs: Any) -> Any:
        with self._waits.timed():
            return dist.all_reduce(*args, **kwargs)
