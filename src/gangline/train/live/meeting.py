"""How a living rank leaves a gang that lost a peer, and meets it again: same process, same number, new groups."""

import time
from dataclasses import replace

from gangline.errors import LostPeerError
from gangline.train import heartbeat, rendezvous
from gangline.train.context import Context
from gangline.train.environment import RankEnvironment
from gangline.train.live.order import MeetAgain, hear
from gangline.train.mesh import Meshes

WORD_SECONDS = 60.0
"""So long is the keeper's word awaited; a gang that starts anew as a whole ends its ranks long before."""
MEET_SECONDS = 120.0
"""Silence announced from the loss to the first step."""
_LOOK_SECONDS = 0.02


def meet_again(context: Context, environment: RankEnvironment) -> RankEnvironment:
    """Join the generation that the keeper names; `context` has its groups and its number afterwards.

    Raises:
        LostPeerError: No word came, or the gang did not come together.
    """
    heartbeat.expect(MEET_SECONDS)
    context.phase("rendezvous")
    order = _await_word(environment)
    env = replace(environment, generation=order.generation, master_port=order.port)
    context.groups = rendezvous.join(env, context.plan.device)
    context.meshes = Meshes.of(context.plan, context.rank)
    context.generation = order.generation
    context.events.next_generation(order.generation)
    return env


def _await_word(environment: RankEnvironment) -> MeetAgain:
    patience = time.monotonic() + WORD_SECONDS
    while time.monotonic() < patience:
        order = hear(environment.home)
        if order is not None and order.generation > environment.generation:
            return order
        time.sleep(_LOOK_SECONDS)
    raise LostPeerError(
        f"rank {environment.rank} lost a peer in generation {environment.generation}, and within {WORD_SECONDS:.0f} s "
        "its keeper did not say where to meet its replacement; the gang starts anew from its last checkpoint"
    )
