"""A gang of one rank in this process, on the device of a plan; and calls in a process of their own."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shapes import Model, Shapes

LARGE = Path(__file__).resolve().parents[1] / "train" / "large"
TASK = "llama:Llama"
LEARNING_RATE = 1e-4
PRELOADED = ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.profiler", "gangline.train.loop.trainer"]
"""Imported once for all processes; none of them touches a device."""


def apart(call: Callable[..., Any], *arguments: Any) -> Any:
    """Its answer, from a process of its own, which begins without a device and ends with all that it held there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(call, *arguments).result()


def plan_of(shapes: Shapes, model: Model, *, steps: int, strategy: str = "none", **changes: Any):
    """One pass a step, nothing saved."""
    from gangline.spec.mesh import Mesh
    from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec

    given = {"micro_batch": shapes.micro_batch, "global_batch": shapes.micro_batch, "clip_norm": 1.0} | changes
    return Plan(
        run="bench-00000000-aaaaaa", project="bench", name=f"{strategy}-1", run_prefix="runs/bench/0/0",
        program=ProgramSpec(task=TASK), strategy=strategy, mesh=Mesh(), device=shapes.device,
        precision=shapes.precision, deterministic=False, model=model,
        optimizer={"elementwise": {"rule": "adamw", "lr": LEARNING_RATE}},
        steps=steps, checkpoint=CheckpointPolicy(every=10**6), **given,
    )  # fmt: skip


@contextmanager
def one_rank(plan: Any) -> Iterator[Any]:
    """Its context, while the groups of that gang are there."""
    from gangline.train.account.clock import PhaseClock
    from gangline.train.account.event_log import EventLog
    from gangline.train.runtime.context import RankContext
    from gangline.train.runtime.device_mesh import Meshes, local_device
    from gangline.train.runtime.rendezvous import join_alone, leave

    if str(LARGE) not in sys.path:
        sys.path.insert(0, str(LARGE))
    device = local_device(plan.device, 0)
    groups = join_alone(plan.device)
    yield RankContext(
        plan=plan, rank=0, device=device, groups=groups, clock=PhaseClock("start"), meshes=Meshes.of(plan, 0),
        events=EventLog(None, rank=0, generation=0),
    )  # fmt: skip
    leave()


def trained(context: Any, after_step: Callable[[int], None]) -> list[dict[str, Any]]:
    """Events of the steps of `context`'s plan, over random tokens."""
    from llama import Llama

    from gangline.train.loop.engine import TrainingJob
    from gangline.train.loop.trainer import Trainer

    reported: list[dict[str, Any]] = []
    context.events.listeners.append(lambda each: reported.append(each) if each["event"] == "step" else None)
    task, plan = Llama(), context.plan
    trainer = Trainer(context, task, TrainingJob(seed=plan.seed, steps=plan.steps, number=0))
    trainer.train(task.build_data("train", {"model": plan.model}), after_step=after_step)
    trainer.engine.close()
    return reported


def settle(device: str) -> None:
    """What was asked of the device is done."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
