"""DDP and FSDP2 around one model: which gradients are reduced when, and how long ranks wait for each other in it."""

import time
import warnings
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from gangline.spec.plan import Precision
from gangline.train.compat import DefaultAllGather, DefaultReduceScatter, queue_callback
from gangline.train.loop.wait import WaitMeter
from gangline.train.parallel.precision import shard_policy


class DataParallel(Protocol):
    """One wrapped model."""

    @property
    def model(self) -> nn.Module:
        """What is called."""
        ...

    @property
    def bare(self) -> nn.Module:
        """What is saved: names without a wrapper's prefix."""
        ...

    @property
    def sharded(self) -> bool: ...

    def set_sync(self, last: bool) -> None:
        """Before the forward pass of a micro-batch: gradients are reduced only after the last one of a step."""
        ...

    def watch(self, loss: Tensor) -> None:
        """Before its backward pass, whose waiting is to be measured."""
        ...


class Plain:
    """One rank, nothing to share."""

    sharded = False

    def __init__(self, model: nn.Module) -> None:
        self.model = self.bare = model

    def set_sync(self, last: bool) -> None:
        """Nothing is reduced."""

    def watch(self, loss: Tensor) -> None:
        """Nobody is waited for."""


class Replicated:
    """DDP: full copies, gradients averaged in buckets while backward goes on."""

    sharded = False

    def __init__(self, model: nn.Module, *, device: torch.device, bucket_bytes: int | None, waits: WaitMeter) -> None:
        self.bare = model
        self.model = self._ddp = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=bucket_bytes / 2**20 if bucket_bytes else None,
            gradient_as_bucket_view=True,
            init_sync=False,  # every rank gave itself the same weights
        )
        self._waits = waits

    def set_sync(self, last: bool) -> None:
        self._ddp.require_backward_grad_sync = last

    def watch(self, loss: Tensor) -> None:
        """What is queued first is called first: when all is computed, before DDP's own call, which waits."""
        loss.register_hook(lambda _: queue_callback(self._waits.computed))  # type: ignore[no-untyped-call]


class Sharded:
    """FSDP2: parameters, gradients and optimizer state in shards; a block is whole only while it computes."""

    sharded = True

    def __init__(self, model: nn.Module) -> None:
        """`model` has been through `shard`, block by block and as a whole."""
        self.model = self.bare = model
        self._root = cast(FSDPModule, model)

    def set_sync(self, last: bool) -> None:
        self._root.set_requires_gradient_sync(last)

    def watch(self, loss: Tensor) -> None:
        """Collectives are timed one by one."""


def shard(
    module: nn.Module, mesh: DeviceMesh, *, precision: Precision, reshard: bool, is_root: bool, waits: WaitMeter
) -> None:
    """Shard the parameters of `module` that no inner call took, in place; all ranks must call.

    With `reshard` they are whole only during its passes, but for the root's, which backward wants at once.
    """
    warnings.filterwarnings("ignore", message=_VIEW)
    policy = shard_policy(precision, is_root=is_root)
    fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=None if reshard else False)
    if mesh.device_type == "cpu" and mesh.size() > 1:
        sharded = cast(FSDPModule, module)
        sharded.set_custom_all_gather(_TimedAllGather(waits))
        sharded.set_custom_reduce_scatter(_TimedReduceScatter(waits))


_VIEW = r"FSDP2-wrapped module \(.*\) returned a view tensor"
"""Said of any model that ends in a reshape; only one that is changed in place afterwards would be wrong."""


class _TimedAllGather(DefaultAllGather):
    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.monotonic()
        try:
            return super().__call__(*args, **kwargs)
        finally:
            self._waits.add(time.monotonic() - start)


class _TimedReduceScatter(DefaultReduceScatter):
    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.monotonic()
        try:
            return super().__call__(*args, **kwargs)
        finally:
            self._waits.add(time.monotonic() - start)
