"""Compatibility with torch 2.11 to 2.15: names that moved or are not public yet. No other module checks versions."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, GradBucket, HashStore, PrefixStore, Store, TCPStore
from torch._C._distributed_c10d import _dump_fr_trace_json as dump_flight_record
from torch.autograd import Variable
from torch.distributed import distributed_c10d
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _abort_process_group, _world
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as fsdp_collectives
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)
from torch.distributed.tensor.parallel.loss import _enable_custom_loss_ops

NETWORK_ERRORS: tuple[type[BaseException], ...] = tuple(
    getattr(dist, name) for name in ("DistBackendError", "DistNetworkError", "DistStoreError") if hasattr(dist, name)
)
"""What collectives and stores raise when a peer is gone; gloo raises a bare RuntimeError besides."""

queue_callback: Callable[[Callable[[], None]], None] = Variable._execution_engine.queue_callback  # noqa: SLF001  see above
"""During a backward pass: call this at its end, in the order of asking. DDP and FSDP2 use it as well."""

compute_losses_in_parts: Callable[[], None] = _enable_custom_loss_ops
"""From here on, for the life of this process, the cross entropy of logits that lie in parts never puts them together.
`loss_parallel()` does so for a block, but the backward passes of a loop lie in none."""

all_gather_single: Callable[..., dist.Work | None] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""Into one tensor, by rank; it had the other name until 2.15."""

reduce_scatter_single: Callable[..., dist.Work | None] = getattr(
    dist, "reduce_scatter_single", dist.reduce_scatter_tensor
)
"""Out of one tensor, by rank; likewise."""

set_timeout: Callable[[timedelta, dist.ProcessGroup], None] = (
    getattr(dist, "set_timeout", None) or distributed_c10d._set_pg_timeout  # noqa: SLF001  see below
)
"""How long collectives of a group wait, from now on; it had the other name until 2.15."""

abort_all_groups: Callable[[], None] = _abort_process_group
"""Give up the default group and all others, whatever is under way in them; nobody is waited for."""


def name_groups_from_zero() -> None:
    """Before the first group is made: groups find each other by a number, which one that could not be made has taken.

    A rank that tried in vain would wait under another name than a rank that is new.
    """
    _world.group_count = 0


def forget_groups(mesh: DeviceMesh) -> None:
    """`mesh` finds its groups by name from now on and keeps none alive, though torch's caches keep it.

    In 2.15 a mesh holds its groups as well, for code that is compiled.
    """
    getattr(mesh, "_pg_registry", {}).clear()


def step_in_micro_batches(schedule: Any, inputs: list[dict[str, Any]], batches: list[Any]) -> None:
    """A step of a pipeline's schedule over micro-batches as they are: keywords of the first stage, targets of the last.

    In 2.13 `step` takes whole batches alone, and cuts them by itself.
    """
    if "kwarg_mbs" in inspect.signature(schedule.step).parameters:
        schedule.step(kwarg_mbs=inputs, target_mbs=batches, return_outputs=False)
        return
    for stage in getattr(schedule, "_stages", None) or [schedule._stage]:  # noqa: SLF001  see above
        stage.has_backward = True
        stage.clear_runtime_states()
    schedule._step_microbatches(None, inputs, batches, None, False)  # noqa: SLF001  see above


def torch_release() -> tuple[int, int]:
    """Of the torch that runs here, as (2, 15)."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


__all__ = [
    "NETWORK_ERRORS",
    "DefaultAllGather",
    "DefaultReduceScatter",
    "FileStore",
    "GradBucket",
    "HashStore",
    "PrefixStore",
    "Store",
    "TCPStore",
    "abort_all_groups",
    "all_gather_single",
    "all_to_all_single_autograd",
    "compute_losses_in_parts",
    "dump_flight_record",
    "forget_groups",
    "fsdp_collectives",
    "name_groups_from_zero",
    "queue_callback",
    "reduce_scatter_single",
    "replicate",
    "set_timeout",
    "step_in_micro_batches",
    "torch_release",
]
