"""Names of torch that moved or are not public yet, for 2.11 to 2.15. Nothing else here knows versions."""

import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, HashStore, PrefixStore, Store, TCPStore
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)

NETWORK_ERRORS: tuple[type[BaseException], ...] = tuple(
    getattr(dist, name) for name in ("DistBackendError", "DistNetworkError", "DistStoreError") if hasattr(dist, name)
)
"""What collectives and stores raise when a peer is gone; gloo raises a bare RuntimeError besides."""

__all__ = [
    "NETWORK_ERRORS",
    "DefaultAllGather",
    "DefaultReduceScatter",
    "GradBucket",
    "HashStore",
    "PrefixStore",
    "Store",
    "TCPStore",
]
