"""Fault injection into a task, for drills: the user's task with one fault in it.

The rest of the task and the plan are unchanged: what the gang saves is saved under that plan. `GANGLINE_STRIKE` says
which fault hits which rank after which step; `struck.json` in the gang's folder is written before it happens.

`poison`: one sample of the following step is not finite, whenever it is read in that step or an earlier one is
repeated. A batch without floating-point numbers gets a loss that is not finite.
`oom`: the rank may grow by a little only and allocates more; on a GPU, more than it has. The kernel or the driver
refuses, and only this rank is affected.
"""

import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from gangline.keeper.ipc.environment import RankEnvironment
from gangline.spec.codec import canonical, from_json
from gangline.spec.plan import Plan
from gangline.storage.folder.durable_files import replace_file
from gangline.train import heartbeat
from gangline.train.loop.sample_order import SampleOrder, share
from gangline.train.task import Batch, Loss, Task

MARK = "struck.json"
ROOM_BYTES = 64 << 20
"""Memory that a rank of `oom` may still allocate before it fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultOrder:
    """Fault that a drill asks for."""

    kind: Literal["poison", "oom"]
    rank: int
    step: int
    """Last step before the fault."""

    def to_json(self) -> str:
        """Value of GANGLINE_STRIKE."""
        return canonical(self).decode()


class FaultyTask:
    """The user's task with one fault."""

    def __init__(self, task: Task, order: str) -> None:
        """`order`: JSON of a `FaultOrder`."""
        self._order = from_json(FaultOrder, order.encode())
        self._gang = RankEnvironment.read()
        self._task = task
        self._is_bad = False
        """The poisoned sample was returned, and its loss has not been computed yet."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def build_model(self, options: dict[str, Any]) -> Any:
        """The user's model."""
        return self._task.build_model(options)

    def build_data(self, split: str, options: dict[str, Any]) -> Any:
        """The user's data; of `poison`, one sample of the train split becomes not finite."""
        data = self._task.build_data(split, options)
        if split != "train" or self._order.kind != "poison":
            return data
        return _PoisonedData(data, self, options.get("dataset"))

    def loss(self, outputs: Any, batch: Batch) -> Loss:
        """The user's loss; at the step of the fault this rank runs out of memory, or its loss is NaN."""
        loss = self._task.loss(outputs, batch)
        if not torch.is_grad_enabled():
            return loss
        if self._order.kind == "oom" and self._is_due() and self._gang.rank == self._order.rank:
            self._mark()
            run_out_of_memory(loss.total.device)
        if self._is_bad:
            self._is_bad = False
            return Loss(total=loss.total * float("nan"), weight=loss.weight)
        return loss

    def worst(self, data: Any, rows: Any) -> int:
        """Index of the sample to poison: the first one of the order's rank in the step after the order's.

        `rows`: Rows of data sets that `data` is made of; None: the plan has none.
        """
        plan = Plan.from_json(self._gang.plan.read_bytes())
        order = rows.order_of(data, seed=plan.seed) if rows is not None else None
        order = order or SampleOrder.of(data, seed=plan.seed)
        first, _ = share(plan.global_batch, plan.world_size, self._order.rank)
        return order.samples([self._order.step * plan.global_batch + first])[0]

    def hand_out(self, sample: Any) -> Any:
        """The sample to poison, poisoned if its step is due."""
        if not (self._is_due() or (self._was_injected() and self._step() <= self._order.step)):
            return sample
        self._mark()
        self._is_bad = True
        return {name: _not_finite(value) for name, value in sample.items()} if isinstance(sample, dict) else sample

    def _is_due(self) -> bool:
        return self._step() == self._order.step

    def _step(self) -> int:
        """Last finished step."""
        beat = heartbeat.peek(self._gang.heartbeat)
        return beat.step if beat is not None else heartbeat.NO_STEP

    def _was_injected(self) -> bool:
        return (self._gang.home / MARK).exists()

    def _mark(self) -> None:
        if not self._was_injected():
            content = asdict(self._order) | {"by": self._gang.rank, "mono": time.monotonic()}
            replace_file(self._gang.home / MARK, canonical(content), durable=False)


class _PoisonedData:
    """The train split, with one sample that is not finite while the fault is due."""

    def __init__(self, data: Any, task: FaultyTask, rows: Any) -> None:
        self._data, self._task = data, task
        self._worst = task.worst(data, rows)

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def __getitem__(self, index: int) -> Any:
        sample = self._data[index]
        return self._task.hand_out(sample) if index == self._worst else sample


def run_out_of_memory(device: torch.device) -> None:
    """Allocate more memory than this process may have, without using up that of the machine.

    Raises:
        RuntimeError: Out of memory on a CPU; on a GPU, `torch.OutOfMemoryError`.
    """
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        torch.empty(total + ROOM_BYTES, dtype=torch.uint8, device=device)
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_mapped_bytes() + ROOM_BYTES, hard))
    torch.empty(2 * ROOM_BYTES, dtype=torch.uint8)


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()


def _not_finite(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.full_like(value, float("nan"))
    return float("nan") if isinstance(value, float) else value
