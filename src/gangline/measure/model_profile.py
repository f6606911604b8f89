"""Profile of a model: forward and backward passes on fake tensors, with flops, memory and matrix products counted.

One rank has the whole model without a wrapper; the planner computes how a plan cuts it, the memory run simulates it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate
from torch.utils.flop_counter import FlopCounterMode

from gangline.measure.operation_counts import FORMULAS, OperationCounter, size_bytes, storage_id
from gangline.spec.plan import Precision
from gangline.spec.profile import Attention, Matrices, Trace, Unit
from gangline.train.parallel.model_parts import find_blocks, join, matches
from gangline.train.parallel.precision import autocast
from gangline.train.runtime.initialization import ROOT
from gangline.train.task import Batch, ParallelHints, Task, forward_names, hints_of

FEW, MORE = 2, 4
"""Samples of the two passes, whose difference gives the cost of a sample; a single one would broadcast."""
MOST_MATRICES = 64
"""Largest number of matrix product sizes in a trace, those with the most work."""


@dataclass
class _Pass:
    """Counts of one forward and backward pass."""

    peak: int = 0
    moved: int = 0
    moves: int = 0
    flops: dict[str, int] = field(default_factory=dict)
    """FLOPs of each module, `ROOT` for all."""
    saved: dict[str, int] = field(default_factory=dict)
    """Saved bytes of each block, `ROOT` outside the blocks."""
    boundary: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    """Elements of the rows that the experts of a block received."""
    matrices: tuple[Matrices, ...] = ()
    attention: tuple[Attention, ...] = ()


def trace(task: Task, model: nn.Module, sample: dict[str, Any], precision: Precision) -> Trace:
    """Trace `model`, which loses its values; errors of user code are raised."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        model.train()
        few, more = (_follow(task, model, [sample] * count, precision) for count in (FEW, MORE))
    grown = max(0, more.peak - few.peak) // (MORE - FEW)
    return Trace(
        precision=precision,
        flops_per_sample=few.flops[ROOT] / FEW,
        moved_bytes_per_sample=max(0, more.moved - few.moved) / (MORE - FEW),
        moves=few.moves,
        activation_bytes_per_sample=grown,
        activation_bytes_fixed=max(0, few.peak - FEW * grown),
        units=_units(model, find_blocks(model, hints_of(task)), hints_of(task), few),
        samples=FEW,
        matrices=few.matrices,
        attention=few.attention,
    )


def _follow(task: Task, model: nn.Module, samples: Sequence[dict[str, Any]], precision: Precision) -> _Pass:
    """Run one pass; gradients are freed at once, because the plan decides how long they stay."""
    batch: Batch = default_collate(list(samples))
    takes = forward_names(model)
    found, watch = _Pass(), OperationCounter()
    blocks = find_blocks(model, hints_of(task))
    with ExitStack() as stack:
        stack.enter_context(_without_gradients(model))
        counter = stack.enter_context(FlopCounterMode(display=False, custom_mapping=FORMULAS))
        stack.enter_context(watch)
        stack.enter_context(_by_block(blocks, watch, found))
        stack.enter_context(_to_experts(_experts(blocks, hints_of(task)), found))
        with autocast(precision, torch.device("cpu"), sharded=False):
            outputs = model(**{key: each for key, each in batch.items() if takes is None or key in takes})
            loss = task.loss(outputs, batch)
        del outputs
        loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    own = f"{type(model).__name__}."
    found.flops = {
        name.removeprefix(own): sum(flop_count.values()) for name, flop_count in counter.get_flop_counts().items()
    }
    found.flops[ROOT] = counter.get_total_flops()
    found.peak, found.moved, found.moves = watch.peak, watch.moved, watch.moves
    found.matrices = _largest(watch)
    found.attention = tuple(
        Attention(heads=heads, queries=queries, keys=keys, width=width, is_causal=causal, count=count)
        for (heads, queries, keys, width, causal), count in sorted(watch.attention.items())
    )
    return found


@contextmanager
def _without_gradients(model: nn.Module) -> Iterator[None]:
    def forget(parameter: Tensor) -> None:
        parameter.grad = None

    parameters: list[Any] = [each for each in model.parameters() if each.requires_grad]
    handles = [each.register_post_accumulate_grad_hook(forget) for each in parameters]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _by_block(blocks: Sequence[tuple[str, nn.Module]], watch: OperationCounter, found: _Pass) -> Iterator[None]:
    """Count tensors saved for the backward pass by block, each storage once."""
    where, seen = [ROOT], set[int]()

    def keep(tensor: Tensor) -> Tensor:
        if watch.made(tensor) and storage_id(tensor) not in seen:
            seen.add(storage_id(tensor))
            found.saved[where[-1]] = found.saved.get(where[-1], 0) + tensor.untyped_storage().nbytes()
        return tensor

    def leave(name: str, result: Any) -> None:
        where.pop()
        found.boundary[name] = size_bytes(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))

    handles: list[Any] = []
    for name, block in blocks:
        handles.append(block.register_forward_pre_hook(lambda *_, name=name: where.append(name)))
        handles.append(block.register_forward_hook(lambda _, __, result, name=name: leave(name, result)))
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _to_experts(experts: Mapping[str, Sequence[nn.Module]], found: _Pass) -> Iterator[None]:
    """Count the rows that the experts of each block receive."""

    def count(name: str, rows: Sequence[Tensor]) -> None:
        found.sent[name] = found.sent.get(name, 0) + sum(row.numel() for row in rows)

    handles = [
        module.register_forward_pre_hook(lambda _, args, name=name: count(name, args[:1]))
        for name, modules in experts.items()
        for module in modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _experts(blocks: Sequence[tuple[str, nn.Module]], hints: ParallelHints) -> dict[str, list[nn.Module]]:
    """Modules with experts, by block."""
    pattern = hints.experts
    if pattern is None:
        return {}
    return {
        name: [each for inner, each in block.named_modules() if matches(join(name, inner), pattern)]
        for name, block in blocks
    }


def _units(
    model: nn.Module, blocks: Sequence[tuple[str, nn.Module]], hints: ParallelHints, one: _Pass
) -> tuple[Unit, ...]:
    """The model outside its blocks, then the blocks in order; equal neighbours are one unit."""
    units: list[Unit] = []
    inside, experts = 0, _experts(blocks, hints)
    for name, block in blocks:
        size = _numel(block)
        inside += size
        in_experts = sum(map(_numel, experts.get(name, ())))
        unit = replace(_unit(name, size, one.flops.get(name, 0), one), expert_parameters=in_experts)
        last = units[-1] if units else None
        if last is not None and replace(last, name=name, count=1) == unit:
            units[-1] = replace(last, count=last.count + 1)
        else:
            units.append(unit)
    rest = one.flops[ROOT] - sum(one.flops.get(name, 0) for name, _ in blocks)
    return (_unit(ROOT, _numel(model) - inside, rest, one), *units)


def _unit(name: str, parameters: int, flops: int, one: _Pass) -> Unit:
    return Unit(
        name=name,
        parameters=parameters,
        flops=flops / FEW,
        saved_bytes=one.saved.get(name, 0) / FEW,
        boundary_bytes=one.boundary.get(name, 0) / FEW,
        expert_entries=one.sent.get(name, 0) / FEW,
    )


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _largest(watch: OperationCounter) -> tuple[Matrices, ...]:
    most = sorted(watch.matrices.items(), key=lambda each: (-each[0][0] * each[0][1] * each[0][2] * each[1], each[0]))
    return tuple(Matrices(rows=m, inner=k, columns=n, count=count) for (m, k, n), count in most[:MOST_MATRICES])
