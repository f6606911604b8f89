"""Memory run: peak memory of a plan's ranks, from two simulated steps of a wrapped model on fake tensors.

    python -m gangline.measure.memory_run PLAN.json...

prints a line for each plan as soon as it is known: {"peak_bytes": ..., "seconds": ...} or {"unknown": "why", ...}.
Of a pipeline the peak is that of its largest rank, and "stages" has one of each; "host_bytes" is the peak of what is
offloaded to the host of an accelerator; "assumes" lists assumptions. The task is imported from the current folder. The
peak counts tensors in the second step, by torch's operators on a CPU; it does not include the process itself,
fragmentation, communicators and the page cache.
"""

import argparse
import contextlib
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # collectives of tensors without values
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from gangline.errors import ConfigError, GanglineError, TrainingError
from gangline.measure.live_memory import LiveMemory, simulate_host_copies
from gangline.measure.model_traces import renew_threads
from gangline.measure.simulated_matrices import equal_plans, unfollowed_matrices, without_values
from gangline.measure.simulated_step import SimulatedStep, WholeModelStep
from gangline.optim.executors.rank_updates import local_part
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.spec.plan import Plan
from gangline.train.account.clock import PhaseClock
from gangline.train.account.event_log import EventLog
from gangline.train.loop.gradient_norm import align_gradients
from gangline.train.parallel.line_optimizer import line_optimizer, place_state, split_groups_by_mesh
from gangline.train.parallel.state_on_disk import StateWindow
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import Meshes
from gangline.train.runtime.rendezvous import Groups
from gangline.train.task import Task, hints_of, load_task

STEPS = 2
"""Optimizer state exists from the second step on, whose peak counts; state in files is largest when it is created."""
_MOST_LETTERS = 300


def main(arguments: list[str]) -> int:
    """Print the peak memory of each plan as a line of JSON; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gangline.measure.memory_run")
    parser.add_argument("plans", type=Path, nargs="+", metavar="PLAN.json")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(Path.cwd()))
    for path in options.plans:
        start = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            found = _answer(path)
        sys.stdout.write(json.dumps(found | {"seconds": round(time.monotonic() - start, 3)}) + "\n")
        sys.stdout.flush()
    return 0


def _answer(path: Path) -> dict[str, Any]:
    """The peaks of a plan, or the reason why they are unknown: any error of user code on fake tensors is one."""
    try:
        plan = Plan.from_json(path.read_bytes())
        peaks = peaks_of(load_task(plan.program.task or ""), plan)
    except GanglineError as error:
        return {"unknown": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"unknown": _describe(error)}
    on_device = [peak.device for peak in peaks]
    found: dict[str, Any] = {"peak_bytes": max(on_device)} | ({"stages": on_device} if len(peaks) > 1 else {})
    if on_host := max(peak.host for peak in peaks):
        found["host_bytes"] = on_host
    return found | ({"assumes": words} if (words := assumed(plan)) else {})


@dataclass(frozen=True, slots=True)
class RankPeak:
    """Peak bytes of tensors of one rank."""

    device: int
    host: int = 0
    """Offloaded from an accelerator; 0 on CPUs, which have one memory."""


def peaks_of(task: Task, plan: Plan) -> list[RankPeak]:
    """Peaks of the ranks of `plan`: one for each pipeline stage, else one for all ranks.

    Each is simulated in a process of its own, because torch caches process groups by the shape of a mesh.

    Raises:
        ConfigError: The plan offloads activations, which is not simulated; or the runtime refuses the plan for this
            model.
        TrainingError: The model cannot run on fake tensors.
    """
    if reason := unfollowed(plan):
        raise ConfigError(reason)
    return [_in_child(partial(peak_of, task, plan, rank)) for rank in _ranks(plan)]


def peak_of(task: Task, plan: Plan, rank: int) -> RankPeak:
    """Peak of one rank, simulated in this process, which must simulate no other rank afterwards."""
    gloo = plan.device == "cpu"
    waits = plan.memory.offload == "cpu" and not gloo
    plan = replace(plan, device="cpu")  # nothing is computed: no accelerator is needed
    with _simulated_gang(plan, rank) as context:
        passes = _passes(task, context)
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            memory = LiveMemory(fake, gloo=gloo)
            with (
                memory,
                memory.resizes(),
                memory.shapes(),
                simulate_host_copies(memory) if waits else contextlib.nullcontext(),
            ):
                passes.fill()
                if waits:
                    memory.move_to_host(map(local_part, passes.model.parameters()))
                _train(task, passes, context, memory, host=memory.on_host if waits else contextlib.nullcontext)
            return RankPeak(memory.device.peak, memory.host.peak)


def unfollowed(plan: Plan) -> str:
    """Why `plan` cannot be simulated; empty if it can."""
    if reason := unfollowed_matrices(plan):
        return reason
    if plan.memory.offload == "activations":
        return (
            'wanted train.memory.offload "none", "cpu" or "optimizer_nvme", found "activations": a memory run does not '
            "simulate which of them are on the host"
        )
    return ""


def assumed(plan: Plan) -> str:
    """Assumptions of the peak of `plan`; empty if there are none."""
    words = {
        "experts get equally many rows": plan.mesh.ep > 1,
        "blocks are not compiled": plan.compile,
        "owners of matrices keep what the first one does": "rule" in plan.optimizer and plan.world_size > 1,
    }
    return "; ".join(each for each, holds in words.items() if holds)


def _ranks(plan: Plan) -> range:
    """The first of each stage's ranks, or of all."""
    world = plan.world_size
    return range(0, world, world // plan.mesh.pp)


def _in_child(call: Callable[[], RankPeak]) -> RankPeak:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send_result, args=(sender, call), daemon=True)
    child.start()
    sender.close()
    try:
        result = json.loads(receiver.recv_bytes())
    except EOFError as error:
        raise TrainingError("the process that simulated a rank died") from error
    finally:
        child.join()
    if "refused" in result:
        raise ConfigError(result["refused"])
    if "failed" in result:
        raise TrainingError(result["failed"])
    return RankPeak(*result["peak"])


def _send_result(sender: Connection, call: Callable[[], RankPeak]) -> None:
    renew_threads()
    try:
        result: dict[str, Any] = {"peak": astuple(call())}
    except ConfigError as error:
        result = {"refused": str(error)}
    except Exception as error:
        traceback.print_exc()
        result = {"failed": _describe(error)}
    sender.send_bytes(json.dumps(result).encode())


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MOST_LETTERS]


def _passes(task: Task, context: RankContext) -> SimulatedStep:
    if context.plan.mesh.pp == 1:
        return WholeModelStep(task, context)
    from gangline.measure.simulated_pipeline import PipelineStep  # imports torch's schedules

    return PipelineStep(task, context)


@contextlib.contextmanager
def _simulated_gang(plan: Plan, rank: int) -> Iterator[RankContext]:
    """One rank of a gang whose collectives return at once, without values."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=plan.world_size)
    try:
        world = dist.group.WORLD
        assert world is not None, "it was just made"
        yield RankContext(
            plan=plan,
            rank=rank,
            device=torch.device("cpu"),
            groups=Groups(control=world, checkpoint=world),
            meshes=Meshes.of(plan, rank),
            clock=PhaseClock("other"),
            events=EventLog(None, rank=rank, generation=0),
        )
    finally:
        dist.destroy_process_group()


def _train(
    task: Task,
    passes: SimulatedStep,
    context: RankContext,
    memory: LiveMemory,
    *,
    host: Callable[[], AbstractContextManager[None]],
) -> None:
    """Run the steps; `memory` then has the peak of the last one. `host` is the context of optimizer updates.

    In the first step torch also propagates the placements of DTensors.
    """
    model, has_buckets = passes.model, context.plan.wrapping.is_ddp
    optimizer = _optimizer(task, model, context)
    split_groups_by_mesh(optimizer)
    if has_buckets:
        _allocate_gradients(model)
    for _ in range(STEPS):
        memory.forget_peak()
        passes.run()
        with host():
            align_gradients([parameter for parameter in model.parameters() if parameter.requires_grad])
            optimizer.step()
            optimizer.zero_grad(set_to_none=not has_buckets)


def _optimizer(task: Task, model: nn.Module, context: RankContext) -> Any:
    if hasattr(task, "build_optimizer"):
        made = task.build_optimizer(model, dict(context.plan.optimizer))
        return place_state(made, context, window=_NoFile)
    with equal_plans():
        made = line_optimizer(model, context, hints_of(task), window=_NoFile)
    if isinstance(made, MatrixOptimizer):
        without_values(made)
    return made


class _NoFile(StateWindow):
    """Window without a file: updated state is freed, and created again in the next step."""

    def take(self, state: dict[Any, dict[str, Any]]) -> None:
        for parameter in self.parameters:
            state.pop(parameter, None)


def _allocate_gradients(model: nn.Module) -> None:
    """Allocate gradients for the whole run, as DDP's buckets do."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
