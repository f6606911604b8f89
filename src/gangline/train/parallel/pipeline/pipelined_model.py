"""A pipelined model as the training loop sees it: callable on all ranks, trained by its schedule."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn

from gangline.errors import ConfigError
from gangline.planner.layouts.schedules import owner_of
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.pipeline.composition import Composition
from gangline.train.parallel.pipeline.forward_relay import ForwardRelay, Layouts
from gangline.train.parallel.pipeline.packed_tensors import TensorChannel
from gangline.train.parallel.pipeline.schedule import LossOf, Schedule, Stopwatch, make_schedule
from gangline.train.parallel.pipeline.stage_module import merge
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.torch_compat import step_in_micro_batches
from gangline.train.task import Batch

Inputs = dict[str, Any]
"""Arguments of forward for one micro-batch."""


class PipelinedModel(ParallelModel):
    """This rank's stages of one model; every rank of the pipeline makes the same calls.

    The schedule reduces gradients after its last backward pass and times each chunk; stages call all of their blocks.
    """

    def __init__(
        self, whole: nn.Module, parts: Mapping[int, nn.Module], wrapped: Mapping[int, nn.Module], *,
        context: RankContext, stages: int, sharded: bool, composition: Composition,
    ) -> None:  # fmt: skip
        """`parts` and `wrapped` are this rank's stages by number, bare and as data parallelism wraps them.

        `composition` of the whole model checks with the first inputs that the stages compute the same.
        """
        plan, group = context.plan, context.meshes.group("pp")
        assert group is not None, "a pipeline has peers"
        self.sharded = sharded
        self._schedule_name, self._group, self._device = plan.pp_schedule, group, context.device
        self._parts, self._wrapped, self._stages = dict(parts), dict(wrapped), stages
        owners = [owner_of(plan.pp_schedule, plan.mesh.pp, each) for each in range(stages)]
        self._relay = ForwardRelay(
            self._parts, owners, context.meshes.place["pp"], TensorChannel(group, context.device)
        )
        self.model = self.bare = self._callable(whole)
        self.stopwatch = Stopwatch()
        self._schedules: dict[object, Schedule] = {}
        self._composition: Composition | None = composition
        self._events = context.events

    def step(self, inputs: Sequence[Inputs], batches: Sequence[Batch], loss_of: LossOf) -> None:
        """Forward and backward passes of one step; leaves gradients. Collective.

        Args:
            inputs: Arguments of forward, by micro-batch.
            batches: Whole micro-batches, for `loss_of`.
            loss_of: Called on the rank of the last stage only; the same function every time.

        Raises:
            ConfigError: The micro-batches differ in shape.
        """
        schedule = self._schedule_for(inputs, batches, loss_of)
        arguments: list[Inputs] = list(inputs) if 0 in self._parts else [{} for _ in inputs]
        step_in_micro_batches(schedule, arguments, list(batches))

    def outputs(self, flat: Any) -> Any:
        """Outputs of the model, from the tensors that its last stage returned."""
        return self._relay.restore(flat)

    def _schedule_for(self, inputs: Sequence[Inputs], batches: Sequence[Batch], loss_of: LossOf) -> Schedule:
        layout = _layout(batches)
        key = (len(batches), layout)
        if key not in self._schedules:
            self._schedules[key] = make_schedule(
                self._schedule_name, self._wrapped, self._probe(inputs[0]), micro_batches=len(batches),
                stages=self._stages, group=self._group, device=self._device, loss_of=loss_of,
                stopwatch=self.stopwatch,
            )  # fmt: skip
        return self._schedules[key]

    def _probe(self, inputs: Inputs) -> dict[int, tuple[Layouts, Layouts]]:
        """Run one micro-batch forward, without dropout, to find the layouts between stages."""
        self._require_same((), inputs)
        self.model.eval()
        try:
            return self._relay.probe(inputs)
        finally:
            self.model.train()

    def _require_same(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check once, before training or evaluation; local."""
        composition, self._composition = self._composition, None
        if composition is not None and (reason := composition.require_same(args, kwargs)):
            self._events.emit("stages_untried", reason=reason)

    def _callable(self, whole: nn.Module) -> nn.Module:
        """Module with everything that this rank holds, under the names of the whole model; a call runs all stages."""
        bare: Any = merge(list(self._parts.values()))

        @functools.wraps(type(whole).forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._require_same(args, kwargs)
            return self._relay(*args, **kwargs)

        def train(mode: bool = True) -> nn.Module:
            for module in (*self._parts.values(), *self._wrapped.values()):
                module.train(mode)
            return cast(nn.Module, nn.Module.train(bare, mode))

        forward.__signature__ = inspect.signature(whole.forward)  # type: ignore[attr-defined]  # what inspect looks for
        bare.forward, bare.train = forward, train
        return cast(nn.Module, bare)


def _layout(batches: Sequence[Batch]) -> object:
    layouts = [{key: tuple(getattr(each, "shape", ())) for key, each in batch.items()} for batch in batches]
    for number, layout in enumerate(layouts):
        for key, shape in layout.items():
            if shape != layouts[0].get(key):
                raise ConfigError(
                    f"a pipeline needs micro-batches of one shape: {key!r} is {list(layouts[0].get(key, ()))} in the "
                    f"first and {list(shape)} in number {number}; pad samples to one length within a step"
                )
    return tuple(sorted(layouts[0].items()))
