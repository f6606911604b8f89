"""Simulated step of a rank: passes of a wrapped model on tensors without values, also of a pipeline under its schedule.

Messages between ranks, and what a matrix rule reads, have fixed results. Simulated are matrices that ranks have whole,
and shards that FSDP cuts along one dim: which part of a matrix another rank holds is computed here, as only that rank
could tell.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.tensor import DTensor, Shard
from torch.utils.data import default_collate

from gangline.measure.model_traces import sample_of
from gangline.optim import matrix_optimizer
from gangline.optim.executors import holders
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.holders import Part, part_of
from gangline.optim.executors.rank_updates import MatrixParameter
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.planner.layouts.schedules import stages_of
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.plan import Plan
from gangline.spec.strategies import effective_strategy
from gangline.train.parallel.blocks import BlockWrapper
from gangline.train.parallel.chunked_loss import ChunkedLoss
from gangline.train.parallel.context_parallel import SequenceCut, join_sequence
from gangline.train.parallel.data_parallel import ParallelModel, Sharded, SingleRank
from gangline.train.parallel.expert_parallel import require_experts
from gangline.train.parallel.memory_savings import require_blocks
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.parallel.model_requirements import require_shardable
from gangline.train.parallel.pipeline.build import StageBuilder
from gangline.train.parallel.pipeline.forward_relay import ForwardRelay, Layouts
from gangline.train.parallel.pipeline.packed_tensors import TensorChannel
from gangline.train.parallel.pipeline.schedule import Stopwatch, TimedStage, make_schedule
from gangline.train.parallel.pipeline.stage_module import StageForward, merge
from gangline.train.parallel.precision import autocast
from gangline.train.parallel.tensor_parallel import whole
from gangline.train.parallel.tensor_rules import require_degree
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.initialization import Initializer
from gangline.train.runtime.torch_compat import step_in_micro_batches
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
        [sample_of(task, plan.model, [each.path for each in plan.data.files])] * plan.micro_batch
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


_REFRESHES = 1
"""Number of the second step, whose peak counts: roots and bases of all matrices are computed in it."""


def unfollowed_matrices(plan: Plan) -> str:
    """Why the matrix rule of `plan` cannot be simulated; empty if it can, or if there is none."""
    table, mesh = read_matrix_rule(plan.optimizer), plan.mesh
    if table is None:
        return ""
    rule = f"updates of whole matrices (optimizer.rule {table.rule!r})"
    if mesh.cp * mesh.tp * mesh.pp * mesh.ep > 1:
        return f"a memory run does not simulate {rule} where ranks hold parts of the model, other than shards"
    if plan.memory.offload == "cpu":
        return f"a memory run does not simulate {rule} with shards on the host"
    if plan.memory.offload == "optimizer_nvme":
        return f"a memory run does not simulate {rule} with their state in files"
    return f'a memory run does not simulate {rule} with overlap "forward"' if table.overlaps else ""


@contextmanager
def equal_plans() -> Iterator[None]:
    """Inside, all ranks tell what this one does when optimizers are created, and which shards they have."""
    along = holders._ranks_along  # noqa: SLF001  # a mesh has values, though tensors have none

    def ranks_along(*arguments: Any) -> holders.Ranks:
        with unset_fake_temporarily():
            return along(*arguments)

    def texts(exchange: UpdateExchange, text: str, device: torch.device) -> list[str]:
        del device
        return [text] * exchange.ranks

    def gather_parts(parameters: Sequence[MatrixParameter], hosts: UpdateExchange, _: torch.device) -> list[list[Part]]:
        return [[_part(each.parameter, host, hosts.ranks) for each in parameters] for host in range(hosts.ranks)]

    answers: tuple[tuple[Any, str, Any], ...] = (
        (UpdateExchange, "texts", texts), (holders, "_ranks_along", ranks_along),
        (matrix_optimizer, "gather_parts", gather_parts),
    )  # fmt: skip
    originals = [getattr(owner, name) for owner, name, _ in answers]
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(answers, originals, strict=True):
            setattr(owner, name, original)


def _part(parameter: torch.Tensor, host: int, hosts: int) -> Part:
    """What the rank `host` of `hosts` has: as many rows or columns as each other one, the last of them fewer."""
    shape = tuple(parameter.shape)
    size, offset = [*shape], [0] * len(shape)
    for placement in parameter.placements if isinstance(parameter, DTensor) else ():
        if isinstance(placement, Shard):
            share = -(-shape[placement.dim] // hosts)
            offset[placement.dim] = min(host * share, shape[placement.dim])
            size[placement.dim] = min(share, shape[placement.dim] - offset[placement.dim])
    return part_of(shape, size, offset)


def without_values(optimizer: MatrixOptimizer) -> None:
    """Let its steps read no values: every parameter has a finite gradient, and counts of steps are no tensors.

    Also turns a warning of torch off, for good: the process simulates one rank.
    """

    def agree() -> tuple[list[frozenset[int]], list[torch.Tensor]]:
        return [frozenset(range(len(executor.parameters))) for executor in optimizer.executors], []

    optimizer._gradients.agree = agree  # type: ignore[method-assign]  # noqa: SLF001  # what a step asks all ranks
    optimizer._is_counted = True  # noqa: SLF001  # likewise, after the first one
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # for alignment: it is 0
    starts = {"step": 0, "phase": _REFRESHES}
    for state in optimizer.state.values():
        for name in state:
            if (start := starts.get(name.split("::")[-1])) is not None:
                state[name] = _Count(start)


class _Count:
    """Stand-in for a tensor of one element, for a rule that counts."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value

    def add_(self, other: Any) -> "_Count":
        self._value += int(other)
        return self


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
            plan.pp_schedule, {number: each.model for number, each in self._wrapped.items()},
            {number: self._boundaries[number] for number in self._parts}, micro_batches=plan.accumulation,
            stages=self._builder.num_stages, group=group, device=torch.device("cpu"), loss_of=self._loss,
            stopwatch=Stopwatch(), kind=_Stage,
        )  # fmt: skip

    def run(self) -> None:
        inputs = [inputs_of(each, self._takes) if 0 in self._parts else {} for each in self._batches]
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
        found = relay.probe(inputs_of(batch_of(task, context), takes))
    return {number: (_bare(entering), _bare(leaving)) for number, (entering, leaving) in found.items()}


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
        torch.empty(each.shape, dtype=each.dtype, device="meta", requires_grad=each.requires_grad) for each in layouts
    )
