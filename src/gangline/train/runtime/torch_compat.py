"""Compatibility with torch 2.11 to 2.15: names that moved or are not public yet. No other module checks versions."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, HashStore, PrefixStore, Store, TCPStore
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

from gangline.train.runtime.torch_collectives import all_gather_single, reduce_scatter_single

NETWORK_ERRORS: tuple[type[BaseException], ...] = tuple(
    getattr(dist, name) for name in ("DistBackendError", "DistNetworkError", "DistStoreError") if hasattr(dist, name)
)
"""Errors of collectives and stores when a peer is lost; gloo also raises a plain RuntimeError."""

queue_callback: Callable[[Callable[[], None]], None] = Variable._execution_engine.queue_callback  # noqa: SLF001  see above
"""Call a function at the end of the backward pass that is running, in the order of the requests. DDP and FSDP2 use it
as well."""

compute_losses_in_parts: Callable[[], None] = _enable_custom_loss_ops
"""Let cross entropy of sharded logits gather none of them, from now on in this process. `loss_parallel()` does the same
within a block, but the backward passes of a loop are outside of any."""

set_timeout: Callable[[timedelta, dist.ProcessGroup], None] = (
    getattr(dist, "set_timeout", None) or distributed_c10d._set_pg_timeout  # noqa: SLF001  see below
)
"""Set the timeout of later collectives of a group; public since 2.15."""

abort_all_groups: Callable[[], None] = _abort_process_group
"""Abort all groups and their collectives in progress, without waiting for a peer."""


def name_groups_from_zero() -> None:
    """Reset the number in the names of groups; call it before the first group is created.

    A failed attempt uses up numbers: that rank would then wait under another name than a new rank.
    """
    _world.group_count = 0


def forget_groups(mesh: DeviceMesh) -> None:
    """Make `mesh` drop its references to groups: torch caches meshes, which would keep the groups alive.

    Since 2.15 a mesh holds its groups, for compiled code; it also finds them by name.
    """
    getattr(mesh, "_pg_registry", {}).clear()


def step_in_micro_batches(schedule: Any, inputs: list[dict[str, Any]], batches: list[Any]) -> None:
    """Run a step of a pipeline's schedule on given micro-batches: keywords of the first stage, targets of the last.

    In 2.13 `step` takes whole batches only, and splits them itself.
    """
    if "kwarg_mbs" in inspect.signature(schedule.step).parameters:
        schedule.step(kwarg_mbs=inputs, target_mbs=batches, return_outputs=False)
        return
    for stage in getattr(schedule, "_stages", None) or [schedule._stage]:  # noqa: SLF001  see above
        stage.has_backward = True
        stage.clear_runtime_states()
    schedule._step_microbatches(None, inputs, batches, None, False)  # noqa: SLF001  see above


def torch_release() -> tuple[int, int]:
    """Release of the installed torch, as (2, 15)."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


__all__ = [
    "NETWORK_ERRORS",
    "DefaultAllGather",
    "DefaultReduceScatter",
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
