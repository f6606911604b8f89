"""Pipeline schedules of torch over the stages of this rank, with the time of their computation."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)

from gangline.planner.layouts.schedules import SINGLE
from gangline.spec.plan import PipelineSchedule
from gangline.train import heartbeat
from gangline.train.parallel.pipeline.forward_relay import Layouts

Schedule = PipelineScheduleSingle | PipelineScheduleMulti
LossOf = Callable[[Any, Any], Tensor]
"""Loss of the last stage's outputs and their batch, from which the backward pass starts."""

_SINGLE: dict[str, type[PipelineScheduleSingle]] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
_MULTI: dict[str, type[PipelineScheduleMulti]] = {
    "interleaved_1f1b": ScheduleInterleaved1F1B,
    "looped_bfs": ScheduleLoopedBFS,
    "interleaved_zero_bubble": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
    "dualpipev": ScheduleDualPipeV,
}


class Stopwatch:
    """Seconds that this rank computed, by direction; in the rest of a schedule it waits."""

    def __init__(self) -> None:
        self.forward = self.backward = 0.0

    def lap(self) -> tuple[float, float]:
        """Seconds forward and backward since the last lap."""
        seconds, self.forward, self.backward = (self.forward, self.backward), 0.0, 0.0
        return seconds

    @contextmanager
    def timing(self, direction: str) -> Iterator[None]:
        """Add the time inside to `forward` or `backward`."""
        start = time.monotonic()
        try:
            yield
        finally:
            setattr(self, direction, getattr(self, direction) + time.monotonic() - start)
            heartbeat.beat()


def _timed(name: str, direction: str) -> Any:
    """Torch's method of a stage, timed."""

    def call(stage: "TimedStage", *args: Any, **kwargs: Any) -> Any:
        with stage.stopwatch.timing(direction):
            return getattr(PipelineStage, name)(stage, *args, **kwargs)

    return call


class TimedStage(PipelineStage):
    """Stage of torch with a stopwatch."""

    stopwatch: Stopwatch
    forward_one_chunk = _timed("forward_one_chunk", "forward")
    backward_one_chunk = _timed("backward_one_chunk", "backward")
    backward_weight_one_chunk = _timed("backward_weight_one_chunk", "backward")
    perform_reduce_grad = _timed("perform_reduce_grad", "backward")


def make_schedule(
    name: PipelineSchedule, parts: Mapping[int, nn.Module], boundaries: Mapping[int, tuple[Layouts, Layouts]], *,
    micro_batches: int, stages: int, group: ProcessGroup, device: torch.device, loss_of: LossOf, stopwatch: Stopwatch,
    kind: type[TimedStage] = TimedStage,
) -> Schedule:  # fmt: skip
    """Schedule `name` over the stages `parts` of this rank, for micro-batches whose `boundaries` have these layouts."""
    made = []
    for number, part in sorted(parts.items()):
        entering, leaving = boundaries[number]
        stage = kind(
            part, number, stages, device, group=group,
            input_args=entering, output_args=leaving,
        )  # fmt: skip
        stage.stopwatch = stopwatch
        made.append(stage)
    options: dict[str, Any] = {"n_microbatches": micro_batches, "loss_fn": loss_of, "scale_grads": False}
    if name in SINGLE:
        return _SINGLE[name](made[0], **options)
    return _MULTI[name](made, **options)  # type: ignore[arg-type]  # a list of subclasses
