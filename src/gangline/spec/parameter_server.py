"""`[train.parameter_server]` of a line as frozen data, which gang of such a run obeys a plan, and what workers did."""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.spec.bounds import Bound
from gangline.spec.compression import Compression

MOST_WORKERS = 99
"""Each worker has a chain of gang numbers of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterServer:
    """Workers that train apart and servers that merge what they push, as `[train.parameter_server]`."""

    workers: Annotated[
        int,
        Bound(least=2, works="one worker is a gang of its own: ddp or fsdp"),
        Bound(most=MOST_WORKERS, works="give them more ranks"),
    ]
    """Worker gangs that the run starts, 2 to 99."""
    servers: Annotated[int, Bound(least=1)] = 1
    """Processes that merge, on CPU; shards are dealt to them."""
    quorum: Annotated[int | Literal["auto"], Bound(least=1, works='"auto" is three quarters of the workers')] = "auto"
    """Pushes that a merge of a shard waits for; 1 merges each push alone; auto: three quarters of the workers."""
    grace_seconds: Annotated[float, Bound(least=0, works="0 merges what is there at once")] = 30.0
    """Time from the first waiting push; then what is there is merged."""
    max_age: Annotated[int | Literal["auto"], Bound(least=1, works='"auto" is twice the workers')] = "auto"
    """Merges between the pull that a push started from and its own merge; older pushes are dropped and counted; auto:
    twice the workers."""
    max_ahead: Annotated[int, Bound(least=1)] = 4
    """Blocks that a worker trains without the store before it waits."""
    lease_seconds: Annotated[float | Literal["auto"], Bound(least=30.0, works='"auto" follows the blocks')] = "auto"
    """Time after which another worker may take a claimed block; auto: four times the longest block so far, at least
    120."""
    shard_bytes: Annotated[int, Bound(least=2**20, works="67108864 is the default")] = 64 * 2**20
    """Size of a shard of the weights in float32."""
    pull: Literal["fp32", "bf16"] = "fp32"
    """Weights on the way to the workers."""

    @property
    def merge_size(self) -> int:
        """Pushes that a merge waits for."""
        return max(1, self.workers * 3 // 4) if self.quorum == "auto" else self.quorum

    @property
    def oldest(self) -> int:
        """Age of the oldest push that is merged."""
        return 2 * self.workers if self.max_age == "auto" else self.max_age


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterPlan:
    """What the gangs of a run with a parameter server obey beyond the plan of one worker."""

    table: ParameterServer
    compression: Compression
    """Form of pushes, steps of a block, and the outer optimizer; ranks of one worker exchange gradients whole."""
    part: Literal["run", "servers", "worker"] = "run"
    """Whose plan it is: that of the run, of its server gang, or of one worker gang."""
    worker: int = 0
    """Number of the worker, from 1; 0: it is no worker's plan."""

    @property
    def has_joined(self) -> bool:
        """Whether it is the plan of a worker that the run did not start."""
        return self.worker > self.table.workers


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerTotals:
    """All pushes of one worker."""

    worker: int
    """Number of the worker, from 1."""
    blocks: int
    """Blocks that it pushed."""
    seconds: float
    """Time of its blocks."""
    sent_bytes: int
    """Bytes of its changes."""
    received_bytes: int
    """Bytes of the weights that it pulled."""
    silent_seconds: float
    """Time without an answer of the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersSummary:
    """All workers of a run, and what the servers did with their pushes."""

    workers: tuple[WorkerTotals, ...]
    """Workers that pushed; empty: nothing is known of them one by one."""
    merges: int
    """Versions of the shard that has most."""
    age_mean: float
    """Merges between the pull that a push started from and its own merge, on average over all shards."""
    dropped: int
    """Blocks that were too old, in the shard that has most of them."""
    refused: int
    """Blocks that were refused, in the shard that has most of them."""
