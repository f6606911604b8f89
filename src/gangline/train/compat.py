"""Names of torch that moved or are not public yet, for 2.11 to 2.15. Nothing else here knows versions."""

from collections.abc import Callable

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore
from torch.autograd import Variable
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)

NETWORK_ERRORS: tuple[type[BaseException], ...] = tuple(
    getattr(dist, name) for name in ("DistBackendError", "DistNetworkError", "DistStoreError") if hasattr(dist, name)
)
"""What collectives and stores raise when a peer is gone; gloo raises a bare RuntimeError besides."""

queue_callback: Callable[[Callable[[], None]], None] = Variable._execution_engine.queue_callback  # noqa: SLF001
"""During a backward pass: call this at its end, in the order of asking. DDP and FSDP2 use it as well."""

__all__ = [
    "NETWORK_ERRORS",
    "DefaultAllGather",
    "DefaultReduceScatter",
    "HashStore",
    "PrefixStore",
    "Store",
    "TCPStore",
    "queue_callback",
]
