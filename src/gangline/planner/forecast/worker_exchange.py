"""What the workers of a parameter server exchange with the store for each block, by formula."""

from dataclasses import dataclass
from math import ceil

from gangline.errors import ConfigError
from gangline.spec.config.site import Site
from gangline.spec.plan import Plan
from gangline.units import counted, format_bytes, format_seconds

_VALUE_BYTES = {"bf16": 2.0, "int8": 1.0 + 4.0 / 256}
"""Bytes of a number on the way up; int8 has a scale for each 256."""
_ENTRY_BYTES = 8.0
"""Bytes of an entry that topk sends: a value and its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerExchange:
    """Bytes of one worker for one block; a worker pulls at most one version of each shard."""

    servers: int
    shards: int
    """Shards of the parameters; buffers have further ones."""
    merge_size: int
    """Pushes that a merge waits for."""
    push_bytes: float
    pull_bytes: float
    block_seconds: float | None
    """Time of a block of steps; None: that of a step is not known."""

    @property
    def text(self) -> str:
        """Sentence for the plan."""
        dealt = f"{counted(self.servers, 'server')}, {counted(self.shards, 'shard')}"
        both = f"a push of {format_bytes(self.push_bytes)} and at most a pull of {format_bytes(self.pull_bytes)}"
        if not self.block_seconds:
            often = "for each block of a worker"
        else:
            rate = (self.push_bytes + self.pull_bytes) / self.block_seconds
            often = f"every {format_seconds(self.block_seconds)} a worker, {format_bytes(rate)}/s"
        return f"{dealt} \u00b7 {both} {often} \u00b7 merges of {self.merge_size}"


def worker_exchange(plan: Plan) -> WorkerExchange | None:
    """The exchange of the workers of `plan`; None: it has none, or the size of the model is not known."""
    numbers = plan.forecast.parameters
    if plan.parameters is None or numbers is None:
        return None
    table, compression, step = plan.parameters.table, plan.parameters.compression, plan.forecast.step_seconds
    each = _ENTRY_BYTES * compression.ratio if compression.kind == "topk" else _VALUE_BYTES.get(compression.kind, 4.0)
    return WorkerExchange(
        servers=table.servers, shards=ceil(4 * numbers / table.shard_bytes), merge_size=table.merge_size,
        push_bytes=numbers * each, pull_bytes=numbers * (2.0 if table.pull == "bf16" else 4.0),
        block_seconds=None if step is None else step * plan.outer_interval,
    )  # fmt: skip


def require_exchange(plan: Plan, site: Site) -> None:
    """Require a shard for each server, and blocks that are no shorter than their exchange at the rate of the site.

    Raises:
        ConfigError: A server would have nothing to merge, or pushes would pile up at the workers.
    """
    exchange = worker_exchange(plan)
    if exchange is None:
        return
    if exchange.servers > exchange.shards:
        raise ConfigError(
            f"train.parameter_server.servers: wanted at most one for each of {counted(exchange.shards, 'shard')} of the"
            f" parameters, found {exchange.servers}; servers = {exchange.shards} works, or a smaller shard_bytes"
        )
    bytes_per_second = site.plan.storage.get("object store" if site.store.url.startswith("s3:") else "file system")
    if not bytes_per_second or not exchange.block_seconds:
        return
    seconds = (exchange.push_bytes + exchange.pull_bytes) / bytes_per_second
    if seconds > exchange.block_seconds:
        raise ConfigError(
            "train.compression.outer_steps: wanted blocks that last as long as their exchange with the store, found"
            f" blocks of {format_seconds(exchange.block_seconds)} and an exchange of {format_seconds(seconds)} at"
            f" {format_bytes(bytes_per_second)}/s (plan.storage of the site);"
            f" {ceil(seconds / exchange.block_seconds)} times the steps work, or fewer bytes: kind, pull"
        )
