"""Joining a gang: from the environment to a context, with the other ranks or as a single process without a gang."""

import os
import signal
import sys
import threading
from pathlib import Path

import torch

from gangline.errors import ConfigError
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.keeper.ipc.requests import is_live
from gangline.keeper.ipc.signals import FLIGHT_SIGNAL, flight_record_path
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec
from gangline.spec.strategies import effective_strategy
from gangline.storage.folder.durable_files import replace_file
from gangline.train import heartbeat
from gangline.train.account.clock import PhaseClock
from gangline.train.account.event_log import EventLog, serve_metrics
from gangline.train.live.rejoin import rejoin
from gangline.train.loop.random_state import set_deterministic
from gangline.train.loop.step_metrics import forget_peak
from gangline.train.runtime import context as contexts
from gangline.train.runtime import rendezvous
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import local_device
from gangline.train.runtime.torch_compat import dump_flight_record

JOIN_SECONDS = rendezvous.JOIN_TIMEOUT.total_seconds() + 30.0
"""Silence announced while waiting for the others: a rank names the missing ones before the watchdog acts."""


def join(environment: RankEnvironment, plan: Plan, clock: PhaseClock, events: EventLog) -> RankContext:
    """Join the gang as a rank of `plan`; collective.

    Raises:
        ConfigError: The plan is for another world size, or not supported by this runtime.
        LostPeerError: A rank did not join in time.
    """
    events.emit("started", pid=os.getpid(), node=environment.node_rank, gang=environment.gang)
    effective_strategy(plan.strategy, plan.mesh)
    if plan.world_size != environment.world_size:
        raise ConfigError(f"plan {plan.name} is for {plan.world_size} ranks, this gang has {environment.world_size}")
    set_deterministic(plan.deterministic)
    forget_peak()
    clock.switch("rendezvous")
    heartbeat.expect(JOIN_SECONDS)
    heartbeat.beat(phase="rendezvous")
    device = local_device(plan.device, environment.local_rank)
    if is_live(plan):
        environment, groups = rejoin(environment, plan.device)
        events.next_generation(environment.generation)
    else:
        groups = rendezvous.join(environment, plan.device)
    context = contexts.of_gang(environment, plan, device=device, groups=groups, clock=clock, events=events)
    context.handle_sigterm()
    _answer_flight_signal(environment.heartbeat)
    serve_metrics(environment, plan, events)
    clock.switch("other")
    lap = clock.lap()
    context.ledger.book(lap)
    events.emit("joined", seconds=lap["rendezvous"])
    return context


def _answer_flight_signal(heartbeat: Path) -> None:
    """Write the flight record of this process next to its heartbeat on each `FLIGHT_SIGNAL`, from a thread."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(FLIGHT_SIGNAL, lambda *_: None)

    def serve() -> None:
        while (received := os.read(reader, 1)) != b"":
            if received[0] == FLIGHT_SIGNAL:
                replace_file(flight_record_path(heartbeat), dump_flight_record(), durable=False)

    threading.Thread(target=serve, name="flight-recorder", daemon=True).start()


def join_single_process(clock: PhaseClock, *, steps: int, global_batch: int, seed: int) -> RankContext:
    """Context of a program that runs on its own; the arguments take the place of the plan's values."""
    plan = Plan(
        run="single", project="single", name="none-1", run_prefix="runs/single",
        program=ProgramSpec(command=tuple(sys.argv)), strategy="none", mesh=Mesh(), steps=steps,
        global_batch=global_batch, micro_batch=global_batch, seed=seed, checkpoint=CheckpointPolicy(every=steps),
    )  # fmt: skip
    events = EventLog(None, rank=0, generation=0)
    device, groups = torch.device("cpu"), rendezvous.join_alone("cpu")
    return RankContext(plan=plan, rank=0, device=device, groups=groups, clock=clock, events=events)
