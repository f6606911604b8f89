"""Builder of this rank's pipeline stages: cut, initialized and wrapped; no rank holds blocks of others."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from gangline.errors import ConfigError
from gangline.planner.layouts.bubble import require_schedule
from gangline.planner.layouts.pipeline import pipeline_conflicts_of_plan, stage_ranges
from gangline.planner.layouts.schedules import num_stages, stages_of
from gangline.spec.plan import Plan
from gangline.train.parallel.blocks import BlockWrapper
from gangline.train.parallel.data_parallel import ParallelModel
from gangline.train.parallel.model_parts import (
    EmbedAndHead,
    find_blocks,
    find_embed_and_head,
    kept_of,
    pipeline_pieces,
)
from gangline.train.parallel.pipeline.composition import Composition
from gangline.train.parallel.pipeline.pipelined_model import PipelinedModel
from gangline.train.parallel.pipeline.stage_module import StageForward, part_of, put
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import ROOT, Initializer
from gangline.train.runtime.torch_compat import torch_release
from gangline.train.task import ParallelHints

_OLDEST_TORCH = (2, 13)


def build(initializer: Initializer, context: RankContext, hints: ParallelHints) -> PipelinedModel:
    """Initialize this rank's part of the model and wrap it; all ranks must call.

    Raises:
        ConfigError: Fewer blocks than stages, no hints of embedding and head, or micro-batches that differ.
    """
    plan, model = context.plan, initializer.model
    builder = StageBuilder.of(initializer, context, hints)
    composition = builder.composition()
    parts = builder.parts(stages_of(plan.pp_schedule, plan.mesh.pp, context.meshes.place["pp"]))
    wrapped = {number: builder.wrap(number, part) for number, part in parts.items()}
    return PipelinedModel(
        model, parts, {number: parallel_model.model for number, parallel_model in wrapped.items()}, context=context,
        stages=builder.num_stages, sharded=all(parallel_model.sharded for parallel_model in wrapped.values()),
        composition=composition,
    )  # fmt: skip


def require_pipeline(plan: Plan) -> None:
    """Refuse a plan whose pipeline cannot run with any model.

    Raises:
        ConfigError: Micro-batches differ in size, while stages exchange one shape; the schedule needs another number
            of them; an option of the plan does not work in stages; or torch is too old.
    """
    if (release := torch_release()) < _OLDEST_TORCH:
        raise ConfigError(
            f"a pipeline needs torch 2.13 or newer, found {release[0]}.{release[1]}, whose stages send back a gradient "
            "for every tensor that they received, also for those without one; other strategies work"
        )
    share, rest = divmod(plan.global_batch, plan.mesh.data_parallel)
    if rest or share % plan.micro_batch:
        works = [str(size) for size in range(1, share + 1) if share % size == 0]
        raise ConfigError(
            f"a pipeline needs equal micro-batches: global_batch = {plan.global_batch} on {plan.mesh.data_parallel} "
            f"data-parallel ranks is not a multiple of micro_batch = {plan.micro_batch}; "
            + (f"global_batch {plan.mesh.data_parallel * plan.micro_batch * max(1, share // plan.micro_batch)} works"
               if rest else f"micro_batch {', '.join(works)} works")
        )  # fmt: skip
    require_schedule(plan.pp_schedule, plan.mesh.pp, plan.accumulation, share=share)
    for reason in pipeline_conflicts_of_plan(plan):
        raise ConfigError(reason)


class StageBuilder:
    """Cuts a model into stages; after `parts` the model itself is empty."""

    def __init__(
        self, initializer: Initializer, context: RankContext, hints: ParallelHints, *, blocks: dict[str, nn.Module],
        ends: EmbedAndHead, ranges: Sequence[range],
    ) -> None:  # fmt: skip
        self._initializer, self._context, self._hints = initializer, context, hints
        self._blocks, self._ends, self._ranges = blocks, ends, ranges

    @staticmethod
    def of(initializer: Initializer, context: RankContext, hints: ParallelHints) -> "StageBuilder":
        """Builder of a model that is whole.

        Raises:
            ConfigError: The plan cannot run in stages, or the model cannot be cut into so many.
        """
        plan, model = context.plan, initializer.model
        require_pipeline(plan)
        blocks = dict(find_blocks(model, hints))
        ends = find_embed_and_head(model, list(blocks), hints)
        ranges = stage_ranges(pipeline_pieces(model, blocks, ends), num_stages(plan.pp_schedule, plan.mesh.pp))
        return StageBuilder(initializer, context, hints, blocks=blocks, ends=ends, ranges=ranges)

    @property
    def num_stages(self) -> int:
        """Stages of the whole pipeline; a rank holds one or more."""
        return len(self._ranges)

    def composition(self) -> Composition:
        """Composition of the model; call it before `parts`."""
        return Composition(self._initializer.model, list(self._blocks), self._ends, self._hints)

    def parts(self, numbers: Sequence[int]) -> dict[int, nn.Module]:
        """Stages by number; everything outside the blocks is initialized, the blocks are not yet."""
        model, kept = self._initializer.model, {number: self._kept(number) for number in numbers}
        for name in self._blocks:
            put(model, name, None)
        self._initializer.unit(model, ROOT, self._context.device)  # as a whole, because its parts use one random stream
        for name, block in self._blocks.items():
            if any(name in each for each in kept.values()):
                put(model, name, block)
        parts = {number: part_of(model, each) for number, each in kept.items()}
        for name, _ in list(model.named_children()):
            put(model, name, None)
        return parts

    def wrap(self, number: int, part: nn.Module) -> ParallelModel:
        """Initialize the blocks of a stage, and wrap it."""
        wrapper, names = BlockWrapper(self._context, self._hints), list(self._blocks)
        for each in self._ranges[number]:
            block = part.get_submodule(names[each])
            self._initializer.unit(block, names[each], self._context.device)
            wrapper.block(block, names[each], each)
        wrapper.root(part)
        wrapped = wrapper.finish(part)
        self._set_forward(number, part, sharded=wrapped.sharded)
        return wrapped

    def _kept(self, number: int) -> set[str]:
        names = list(self._blocks)
        own = {names[each] for each in self._ranges[number]}
        return kept_of(own, self._ends, is_first=number == 0, is_last=number == len(self._ranges) - 1)

    def _set_forward(self, number: int, part: Any, *, sharded: bool) -> None:
        names = list(self._blocks)
        part.forward = StageForward.of(
            part, [names[each] for each in self._ranges[number]], self._hints, is_first=number == 0,
            is_last=number == len(self._ranges) - 1, precision=self._context.plan.precision,
            device=self._context.device, sharded=sharded,
        )  # fmt: skip
