"""From an environment to a context: meet the other ranks, tell so."""

import os

from gangline.errors import ConfigError
from gangline.spec.plan import Plan
from gangline.train import context as contexts
from gangline.train import heartbeat, rendezvous
from gangline.train.account.clock import Clock
from gangline.train.account.events import EventLog
from gangline.train.context import Context
from gangline.train.environment import RankEnvironment
from gangline.train.flight import answer_signals
from gangline.train.live.meeting import meet
from gangline.train.live.order import is_live
from gangline.train.loop.figures import forget_peak
from gangline.train.loop.random import set_deterministic
from gangline.train.mesh import local_device
from gangline.train.serving import serve_metrics
from gangline.train.strategies import effective_strategy

JOIN_SECONDS = rendezvous.JOIN_TIMEOUT.total_seconds() + 30.0
"""Silence announced while the others are awaited: who waits in vain says for whom before the watchdog acts."""


def join(environment: RankEnvironment, plan: Plan, clock: Clock, events: EventLog) -> Context:
    """Be a rank of `plan`; collective.

    Raises:
        ConfigError: The plan is for another world size, or asks for what this runtime cannot do.
        LostPeerError: Somebody did not come.
    """
    events.emit("started", pid=os.getpid(), node=environment.node_rank, gang=environment.gang)
    effective_strategy(plan)
    if plan.world_size != environment.world_size:
        raise ConfigError(f"plan {plan.name} is for {plan.world_size} ranks, this gang has {environment.world_size}")
    set_deterministic(plan.deterministic)
    forget_peak()
    clock.switch("rendezvous")
    heartbeat.expect(JOIN_SECONDS)
    heartbeat.beat(phase="rendezvous")
    device = local_device(plan.device, environment.local_rank)
    if is_live(plan):
        environment, groups = meet(environment, plan.device)
        events.next_generation(environment.generation)
    else:
        groups = rendezvous.join(environment, plan.device)
    context = contexts.of_gang(environment, plan, device=device, groups=groups, clock=clock, events=events)
    context.obey_sigterm()
    answer_signals(environment.heartbeat)
    serve_metrics(environment, plan, events)
    clock.switch("other")
    lap = clock.lap()
    context.ledger.book(lap)
    events.emit("joined", seconds=lap["rendezvous"])
    return context
