"""Timing of FSDP2's collectives that block: on the CPU the time spent in them counts as waiting."""

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from gangline.train.account.clock import WaitMeter
from gangline.train.runtime.torch_compat import DefaultAllGather, DefaultReduceScatter, fsdp_collectives


def time_shards(module: FSDPModule, waits: WaitMeter) -> None:
    """Count the time in which `module` gathers parameters and scatters gradients as waiting."""
    module.set_custom_all_gather(_AllGather(waits))
    module.set_custom_reduce_scatter(_ReduceScatter(waits))


def time_replicas(waits: WaitMeter) -> None:
    """Count the time of FSDP2's averages among replicas as waiting, for the life of this process."""
    fsdp_collectives.dist = _Distributed(waits)  # type: ignore[attr-defined,assignment]  # replaces that module


def _timed(waits: WaitMeter, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    start = time.monotonic()
    try:
        return call(*args, **kwargs)
    finally:
        waits.add(time.monotonic() - start)


class _AllGather(DefaultAllGather):
    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _timed(self._waits, super().__call__, *args, **kwargs)


class _ReduceScatter(DefaultReduceScatter):
    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _timed(self._waits, super().__call__, *args, **kwargs)


class _Distributed:
    """`torch.distributed` as FSDP2 sees it."""

    def __init__(self, waits: WaitMeter) -> None:
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    def all_reduce(self, *args: Any, **kwargs: Any) -> Any:
        return _timed(self._waits, dist.all_reduce, *args, **kwargs)
