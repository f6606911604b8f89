"""What the workers of a parameter server exchange with the store for each block, by formula."""

from dataclasses import dataclass

from gangline.spec.plan import Plan
from gangline.units import format_bytes, format_seconds

_VALUE_BYTES = {"bf16": 2.0, "int8": 1.0 + 4.0 / 256}
"""Bytes of a number on the way up; int8 has a scale for each 256."""
_ENTRY_BYTES = 8.0
"""Bytes of an entry that topk sends: a value and its place."""
_MOST_MOMENTUM = 0.5
"""Outer momentum that late changes were seen to bear; more of it lost to diloco."""


@dataclass(frozen=True, slots=True)
class WorkerExchange:
    """Bytes of one worker for one block; a worker pulls at most one version of each shard."""

    push_bytes: float
    pull_bytes: float
    block_seconds: float | None
    """Time of a block of steps; None: that of a step is not known."""
    late_momentum: float | None = None
    """Outer momentum that is large for changes that come late; None: it is not, or merges wait for all workers."""

    @property
    def text(self) -> str:
        """Sentence for the plan."""
        both = f"a push of {format_bytes(self.push_bytes)} and at most a pull of {format_bytes(self.pull_bytes)}"
        if not self.block_seconds:
            said = f"{both} for each block of a worker"
        else:
            rate = (self.push_bytes + self.pull_bytes) / self.block_seconds
            said = f"{both} every {format_seconds(self.block_seconds)} a worker, {format_bytes(rate)}/s"
        if self.late_momentum is None:
            return said
        return f"{said}; outer_momentum {self.late_momentum:g} is much for changes that come late, begin with 0.5"


def worker_exchange(plan: Plan) -> WorkerExchange | None:
    """The exchange of the workers of `plan`; None: it has none, or the size of the model is not known."""
    numbers = plan.forecast.parameters
    if plan.parameters is None or numbers is None:
        return None
    compression, step = plan.parameters.compression, plan.forecast.step_seconds
    each = _ENTRY_BYTES * compression.ratio if compression.kind == "topk" else _VALUE_BYTES.get(compression.kind, 4.0)
    pull = 2.0 if plan.parameters.table.pull == "bf16" else 4.0
    table, momentum = plan.parameters.table, compression.outer_momentum
    is_late = table.merge_size < table.workers and momentum > _MOST_MOMENTUM
    return WorkerExchange(
        numbers * each, numbers * pull, None if step is None else step * plan.outer_interval,
        late_momentum=momentum if is_late else None,
    )  # fmt: skip
