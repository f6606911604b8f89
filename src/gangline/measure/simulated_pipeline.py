"""Simulated step of a pipeline rank: its stages under their schedule, with messages without values."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gangline.measure.simulated_step import batch_of, inputs_of, meta_model
from gangline.planner.layouts.schedules import stages_of
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.pipeline.build import StageBuilder
from gangline.train.parallel.pipeline.forward_relay import ForwardRelay, Layouts
from gangline.train.parallel.pipeline.packed_tensors import TensorChannel
from gangline.train.parallel.pipeline.schedule import Stopwatch, TimedStage, make_schedule
from gangline.train.parallel.pipeline.stage_module import StageForward, merge
from gangline.train.parallel.precision import autocast
from gangline.train.parallel.tensor_parallel import whole
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import Initializer
from gangline.train.runtime.torch_compat import step_in_micro_batches
from gangline.train.task import Task, forward_names, hints_of

Boundaries = Mapping[int, tuple[Layouts, Layouts]]
"""Layouts that enter and leave each stage."""


class PipelineStep:
    """Step of one rank of a pipeline, with all its stages."""

    def __init__(self, task: Task, context: RankContext) -> None:
        self._task, self._context, self._boundaries = task, context, boundaries_of(task, context)
        model = meta_model(task, context)
        self._takes = forward_names(model)
        self._builder = StageBuilder.of(MetaInitializer(model, seed=context.plan.seed), context, hints_of(task))
        plan = context.plan
        numbers = stages_of(plan.pp_schedule, plan.mesh.pp, context.meshes.place["pp"])
        self._parts, self._wrapped = _wrapped(self._builder, numbers)
        self.model = merge(list(self._parts.values()))

    def fill(self) -> None:
        plan, group = self._context.plan, self._context.meshes.group("pp")
        assert group is not None, "a pipeline has peers"
        for part in self._parts.values():
            part.to_empty(device="cpu")
            part.train()
        self._batches = [batch_of(self._task, self._context) for _ in range(plan.accumulation)]
        self._schedule = make_schedule(
            plan.pp_schedule, {number: model.model for number, model in self._wrapped.items()},
            {number: self._boundaries[number] for number in self._parts}, micro_batches=plan.accumulation,
            stages=self._builder.num_stages, group=group, device=torch.device("cpu"), loss_of=self._loss,
            stopwatch=Stopwatch(), kind=_Stage,
        )  # fmt: skip

    def run(self) -> None:
        inputs = [inputs_of(batch, self._takes) if 0 in self._parts else {} for batch in self._batches]
        step_in_micro_batches(self._schedule, inputs, list(self._batches))

    def _loss(self, flat: Any, batch: Any) -> Tensor:
        """Loss of a batch, computed on the rank of the last stage."""
        last = self._builder.num_stages - 1
        forward = self._parts[last].forward
        assert isinstance(forward, StageForward), "every stage has one"
        with autocast(self._context.plan.precision, torch.device("cpu"), sharded=self._wrapped[last].sharded):
            loss = self._task.loss(forward.restored(flat), batch)
        return whole(loss.total)


def boundaries_of(task: Task, context: RankContext) -> Boundaries:
    """Boundaries of all stages, for a micro-batch of the plan, whichever rank holds them."""
    model = meta_model(task, context)
    takes = forward_names(model)
    builder = StageBuilder.of(MetaInitializer(model, seed=context.plan.seed), context, hints_of(task))
    numbers = range(builder.num_stages)
    group = context.meshes.group("pp")
    assert group is not None, "a pipeline has peers"
    with FakeTensorMode(allow_non_fake_inputs=True):
        parts, _ = _wrapped(builder, numbers)
        for part in parts.values():
            part.to_empty(device="cpu")
        relay = ForwardRelay(parts, [0] * len(parts), 0, TensorChannel(group, torch.device("cpu")))
        probe = relay.probe(inputs_of(batch_of(task, context), takes))
    return {number: (_bare(entering), _bare(leaving)) for number, (entering, leaving) in probe.items()}


class MetaInitializer(Initializer):
    """Leaves every unit on the meta device."""

    def unit(self, module: nn.Module, name: str, device: torch.device) -> None:
        """Nothing to do: weights have no values."""


class _Stage(TimedStage):
    """Releases outputs that were sent, as torch does for plain tensors, but not for fake ones."""

    def _output_slot_is_releasable(self, output: Any) -> tuple[bool, str]:
        del output
        return not self.is_last, ""

    def _warmup_forward_vote(self, *args: Any, **kwargs: Any) -> None:
        """Skip the vote on known shapes that stages take before torch 2.15: messages have no values here."""

    def _warmup_backward_result(self, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return SimpleNamespace(item=lambda: 1)


def _wrapped(builder: StageBuilder, numbers: Sequence[int]) -> tuple[dict[int, nn.Module], dict[int, ParallelModel]]:
    """Stages by number, bare and as data parallelism wraps them."""
    parts = builder.parts(numbers)
    return parts, {number: builder.wrap(number, part) for number, part in parts.items()}


def _bare(layouts: Layouts) -> Layouts:
    """Meta tensors of the same layouts, outside the fake mode."""
    return tuple(
        torch.empty(layout.shape, dtype=layout.dtype, device="meta", requires_grad=layout.requires_grad)
        for layout in layouts
    )
