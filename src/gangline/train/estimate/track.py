"""The memory run: two steps of one rank of a gang that is not there, wrapped as the runtime wraps it, computed nowhere.

    python -m gangline.train.estimate.track PLAN.json...

prints a line for each plan, as soon as it is known: {"peak_bytes": ..., "seconds": ...} or {"unknown": "why", ...}. The
task is imported from the current folder. The peak is that of tensors in the second step, by torch's own operators on a
CPU; what the process, fragments and communicators take is not in it.
"""

import argparse
import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # collectives of tensors without values
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import default_collate

from gangline.errors import ConfigError
from gangline.spec.plan import Plan
from gangline.train.account.clock import Clock
from gangline.train.account.events import EventLog
from gangline.train.context import Context
from gangline.train.estimate.held import Held
from gangline.train.estimate.sample import sample_of
from gangline.train.initialize import Initializer
from gangline.train.loop.clip import settle
from gangline.train.mesh import Meshes
from gangline.train.optimizer import make_optimizer
from gangline.train.parallel.activation import require_blocks
from gangline.train.parallel.blocks import BlockWrapper, find_blocks
from gangline.train.parallel.context import SequenceCut, join_sequence
from gangline.train.parallel.data_parallel import Plain, Sharded
from gangline.train.parallel.groups import one_mesh_a_group
from gangline.train.parallel.loss import ChunkedLoss
from gangline.train.parallel.model import ParallelModel
from gangline.train.parallel.optimizer_state import place_state
from gangline.train.parallel.precision import autocast
from gangline.train.parallel.shardable import require_shardable
from gangline.train.parallel.tensor import whole
from gangline.train.parallel.tensor_rules import require_degree
from gangline.train.rendezvous import Groups
from gangline.train.strategies import effective_strategy, wrapping_of
from gangline.train.task import Batch, Loss, Task, forward_names, hints_of, load_task

STEPS = 2
"""The optimizer's state is there from the second on, which is the one that is judged."""
MOST_MICRO_BATCHES = 2
"""Of one step: the second already meets the gradients of the first."""
_IN_BUCKETS = ("ddp", "zero1")
_MOST_LETTERS = 300


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="gangline.train.estimate.track")
    parser.add_argument("plans", type=Path, nargs="+", metavar="PLAN.json")
    asked = parser.parse_args(arguments)
    sys.path.insert(0, str(Path.cwd()))
    for path in asked.plans:
        start = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            found = _answer(path)
        sys.stdout.write(json.dumps(found | {"seconds": round(time.monotonic() - start, 3)}) + "\n")
        sys.stdout.flush()
    return 0


def _answer(path: Path) -> dict[str, Any]:
    """Whatever the user's model does without values is a reason, no failure."""
    try:
        plan = Plan.from_json(path.read_bytes())
        return {"peak_bytes": peak_of(load_task(plan.program.task or ""), plan)}
    except ConfigError as error:
        return {"unknown": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"unknown": f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MOST_LETTERS]}


def peak_of(task: Task, plan: Plan) -> int:
    """Bytes of tensors that rank 0 of `plan` holds at most.

    Raises:
        ConfigError: It is not followed here: stages of a pipeline, experts over ranks, tensors that wait elsewhere; or
            the runtime refuses the plan for this model.
    """
    if reason := unfollowed(plan):
        raise ConfigError(reason)
    gloo = plan.device == "cpu"
    plan = replace(plan, device="cpu")  # no accelerator is asked for what is computed nowhere
    with _gang_of_nobody(plan) as context:
        wrapped = _wrap(task, plan, context)
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            held = Held(fake, gloo=gloo)
            with held, held.resizes():
                _Training(task, wrapped, context).steps(held)
            return held.peak


def unfollowed(plan: Plan) -> str:
    """What of `plan` is not followed; empty: nothing."""
    mesh = plan.mesh
    if mesh.pp > 1:
        return f"wanted no stages, found {plan.name}: a schedule runs in ranks only"
    if mesh.ep > 1:
        return f"wanted experts whole, found {plan.name}: rows go where values say, and there are none"
    if plan.memory.offload != "none":
        return f'wanted train.memory.offload "none", found "{plan.memory.offload}"'
    if plan.compile:
        return "wanted train.compile false: what a compiler keeps is its own affair"
    return ""


@contextlib.contextmanager
def _gang_of_nobody(plan: Plan) -> Iterator[Context]:
    """Rank 0 of a gang whose collectives return at once, with nothing in them."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=plan.world_size)
    try:
        world = dist.group.WORLD
        assert world is not None, "it was just made"
        yield Context(
            plan=plan,
            rank=0,
            device=torch.device("cpu"),
            groups=Groups(control=world, checkpoint=world),
            meshes=Meshes.of(plan, 0),
            clock=Clock("other"),
            events=EventLog(None, rank=0, generation=0),
        )
    finally:
        dist.destroy_process_group()


def _wrap(task: Task, plan: Plan, context: Context) -> ParallelModel:
    """The model on the meta device, block by block as on any rank; copies that average are themselves."""
    hints = hints_of(task)
    model = Initializer.build(lambda: task.build_model(dict(plan.model)), seed=plan.seed).model.to("meta")
    blocks = find_blocks(model, hints)
    effective_strategy(plan)
    if plan.mesh.tp > 1:
        require_degree(model, hints, plan.mesh.tp)
    if wrapping_of(plan) in ("fsdp", "zero2"):
        require_shardable(model, blocks)
    require_blocks(len(blocks), plan.memory.activation_checkpointing, model)
    join_sequence(context, model, hints)
    wrapper = BlockWrapper(context, hints)
    for number, (name, block) in enumerate(blocks):
        wrapper.block(block, name, number)
    wrapper.root(model)
    return Sharded(model) if wrapping_of(plan) in ("fsdp", "zero2", "replicate") else Plain(model)


class _Training:
    """Model, optimizer and one batch without values."""

    def __init__(self, task: Task, wrapped: ParallelModel, context: Context) -> None:
        plan, model = context.plan, wrapped.model
        self._task, self._plan, self._wrapped, self._model = task, plan, wrapped, model
        model.to_empty(device="cpu")
        model.train()
        self._has_buckets = wrapping_of(plan) in _IN_BUCKETS
        self._optimizer = place_state(_optimizer(task, model, plan), context)
        one_mesh_a_group(self._optimizer)
        if self._has_buckets:
            _keep_gradients(model)
        cut = SequenceCut.of(context, hints_of(task))
        batch: Batch = default_collate([sample_of(task, plan.model)] * plan.micro_batch)
        self._batch = cut(batch) if cut is not None else batch
        self._takes = forward_names(model)
        self._loss = self._loss_of(plan.memory.loss_chunks)

    def steps(self, held: Held) -> None:
        """`held` has the peak of the last one; how operations on pieces lay their results is found out in the first."""
        count = min(self._plan.accumulation, MOST_MICRO_BATCHES)
        for _ in range(STEPS):
            held.forget_peak()
            for number in range(count):
                self._wrapped.set_sync(number == count - 1)
                self._pass()
            settle([each for each in self._model.parameters() if each.requires_grad])
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=not self._has_buckets)

    def _pass(self) -> None:
        with autocast(self._plan.precision, torch.device("cpu"), sharded=self._wrapped.sharded):
            loss = self._loss(self._batch)
        whole(loss.total).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def _loss_of(self, chunks: int) -> Callable[[Batch], Loss]:
        if chunks == 1:
            return lambda batch: self._task.loss(self._call(batch), batch)
        chunked = ChunkedLoss(self._model, hints_of(self._task), self._task.loss, chunks=chunks)
        return lambda batch: chunked.of(self._call, batch)

    def _call(self, batch: Batch) -> Any:
        return self._model(**{key: each for key, each in batch.items() if self._takes is None or key in self._takes})


def _optimizer(task: Task, model: nn.Module, plan: Plan) -> Any:
    if hasattr(task, "build_optimizer"):
        return task.build_optimizer(model, dict(plan.optimizer))
    return make_optimizer(model, plan.optimizer, precision=plan.precision)


def _keep_gradients(model: nn.Module) -> None:
    """DDP's buckets are gradients that never go."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
