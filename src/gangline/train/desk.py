"""A program at a desk is a gang of one, which saves nothing."""

import sys

import torch

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, Program
from gangline.train import rendezvous
from gangline.train.account.clock import Clock
from gangline.train.account.events import EventLog
from gangline.train.context import Context


def join_desk(clock: Clock, *, steps: int, global_batch: int, seed: int) -> Context:
    """What a gang's plan says elsewhere, the arguments say here."""
    plan = Plan(
        run="desk", project="desk", name="none-1", run_prefix="runs/desk", program=Program(command=tuple(sys.argv)),
        strategy="none", mesh=Mesh(), steps=steps, global_batch=global_batch, micro_batch=global_batch, seed=seed,
        checkpoint=CheckpointPolicy(every=steps),
    )  # fmt: skip
    events = EventLog(None, rank=0, generation=0)
    device, groups = torch.device("cpu"), rendezvous.join_alone("cpu")
    return Context(plan=plan, rank=0, device=device, groups=groups, clock=clock, events=events)
