"""Simulated step of a rank: forward and backward passes of a wrapped model on tensors without values."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import default_collate

from gangline.measure.model_traces import sample_of
from gangline.spec.strategies import effective_strategy
from gangline.train.model.wrap import require_shardable
from gangline.train.parallel.blocks import BlockWrapper
from gangline.train.parallel.chunked_loss import ChunkedLoss
from gangline.train.parallel.context_parallel import SequenceCut, join_sequence
from gangline.train.parallel.data_parallel import ParallelModel, Sharded, SingleRank
from gangline.train.parallel.expert_parallel import require_experts
from gangline.train.parallel.memory_savings import require_blocks
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.parallel.precision import autocast
from gangline.train.parallel.tensor_parallel import whole
from gangline.train.parallel.tensor_rules import require_degree
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import Initializer
from gangline.train.task import Batch, Loss, Task, forward_names, hints_of

MOST_MICRO_BATCHES = 2
"""Micro-batches of a simulated step without stages: the second one runs with the gradients of the first."""


class SimulatedStep(Protocol):
    """Computation of one rank in a step; the model has no values when it is created."""

    model: nn.Module
    """Everything that the rank holds, under the names of the whole model."""

    def fill(self) -> None:
        """Allocate the model, and create a batch."""
        ...

    def run(self) -> None:
        """Run all micro-batches of a step; leaves gradients."""
        ...


class WholeModelStep:
    """Step of a rank with all blocks, or its shards of them."""

    def __init__(self, task: Task, context: RankContext) -> None:
        self._task, self._context = task, context
        self._wrapped = _wrap(task, context)
        self.model = self._wrapped.model

    def fill(self) -> None:
        self.model.to_empty(device="cpu")
        self.model.train()
        self._batch = batch_of(self._task, self._context)
        self._takes = forward_names(self.model)
        self._loss = self._loss_of(self._context.plan.memory.loss_chunks)

    def run(self) -> None:
        count = min(self._context.plan.accumulation, MOST_MICRO_BATCHES)
        for number in range(count):
            self._wrapped.set_sync(number == count - 1)
            with autocast(self._context.plan.precision, torch.device("cpu"), sharded=self._wrapped.sharded):
                loss = self._loss(self._batch)
            whole(loss.total).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def _loss_of(self, chunks: int) -> Callable[[Batch], Loss]:
        if chunks == 1:
            return lambda batch: self._task.loss(self._call(batch), batch)
        chunked = ChunkedLoss(self.model, hints_of(self._task), self._task.loss, chunks=chunks)
        return lambda batch: chunked.of(self._call, batch)

    def _call(self, batch: Batch) -> Any:
        return self.model(**inputs_of(batch, self._takes))


def meta_model(task: Task, context: RankContext) -> nn.Module:
    """The task's model on the meta device, checked as a gang checks it; sets the attention of this process.

    Raises:
        ConfigError: The model does not support the plan.
    """
    plan, hints = context.plan, hints_of(task)
    model = Initializer.build(lambda: task.build_model(dict(plan.model)), seed=plan.seed).model.to("meta")
    effective_strategy(plan.strategy, plan.mesh)
    if plan.mesh.tp > 1:
        require_degree(model, hints, plan.mesh.tp)
    if plan.mesh.ep > 1:
        require_experts(model, hints, plan)
    if plan.wrapping.shards:
        require_shardable(model, find_blocks(model, hints))
    join_sequence(context, model, hints)
    return model


def batch_of(task: Task, context: RankContext) -> Batch:
    """One micro-batch of this rank."""
    plan = context.plan
    cut = SequenceCut.of(context, hints_of(task))
    batch: Batch = default_collate(
        [sample_of(task, plan.model, [file.path for file in plan.data.files])] * plan.micro_batch
    )
    return cut(batch) if cut is not None else batch


def inputs_of(batch: Batch, takes: frozenset[str] | None) -> dict[str, Any]:
    """Arguments of forward from `batch`; `takes` None: all of it."""
    return {key: each for key, each in batch.items() if takes is None or key in takes}


def _wrap(task: Task, context: RankContext) -> ParallelModel:
    """Wrap block by block as on any rank; DDP, which allocates its buckets by itself, is left out."""
    plan, hints, model = context.plan, hints_of(task), meta_model(task, context)
    blocks = find_blocks(model, hints)
    require_blocks(len(blocks), plan.memory.activation_checkpointing, model)
    wrapper = BlockWrapper(context, hints)
    for number, (name, block) in enumerate(blocks):
        wrapper.block(block, name, number)
    wrapper.root(model)
    each = plan.memory.gradient_sync == "each"
    return Sharded(model, reduces_each=each) if plan.wrapping.is_composable else SingleRank(model)
