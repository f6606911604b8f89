"""Shards that wait on the host: what crosses the link to the device, and the update in the host's memory. Pure."""

from dataclasses import dataclass
from typing import Literal

from gangline.planner.shapes.device_pool import Pool

ASSUMED_LINK_BYTES_PER_SECOND = 25e9
"""Rate of one GPU, each way, where the site gives none; 16 lanes of PCIe 4.0 have a line rate of 31.5e9."""
ASSUMED_MEMORY_BYTES_PER_SECOND = 200e9
"""Rate of a server, where the site gives none."""
SHARD_BYTES = 4
"""Bytes of one parameter or gradient on the host: FSDP2 copies float32 and casts on the device."""
NO_MATRIX_RULE = "the time of a matrix rule over shards on the host is not known"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRates:
    """Rates between one rank and its host."""

    link_bytes_per_second: float = ASSUMED_LINK_BYTES_PER_SECOND
    memory_bytes_per_second: float = ASSUMED_MEMORY_BYTES_PER_SECOND
    """Its share of the server's."""
    is_given: bool = False
    """Both by the site."""


def host_rates(pool: Pool, ranks_per_node: int) -> HostRates:
    """Rates as the site gives them, else assumed."""
    link, memory = pool.host_link_bytes_per_second, pool.host_memory_bytes_per_second
    return HostRates(
        link_bytes_per_second=link or ASSUMED_LINK_BYTES_PER_SECOND,
        memory_bytes_per_second=(memory or ASSUMED_MEMORY_BYTES_PER_SECOND) / ranks_per_node,
        is_given=bool(link and memory),
    )


def transfer_seconds(
    parameters: float, host: HostRates, *, reshards: bool, sync: Literal["last", "each"], micro_batches: int
) -> float:
    """Seconds of the shard of one rank in a step, none of it hidden.

    The shard goes to the device before each gather: once, or twice a micro-batch if it `reshards` what was gathered.
    Its gradients come back after each reduction.
    """
    gathers = 2 * micro_batches if reshards else 1
    reductions = micro_batches if sync == "each" else 1
    return SHARD_BYTES * parameters * (gathers + reductions) / host.link_bytes_per_second
