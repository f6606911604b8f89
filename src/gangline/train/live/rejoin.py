"""Rendezvous of live replicas, in their generation or in a newer one that the keeper names while they wait.

A rank that dies during rendezvous or recovery is replaced in a later generation, and all ranks move on to it.
"""

import time
from dataclasses import replace
from functools import partial

from gangline.errors import LostPeerError
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.keeper.ipc.requests import RejoinMessage, read_rejoin
from gangline.spec.plan import Device
from gangline.train import heartbeat
from gangline.train.runtime import rendezvous
from gangline.train.runtime.rendezvous import Groups

MESSAGE_SECONDS = 60.0
"""Time to wait for the keeper's rejoin message; a gang that restarts as a whole ends its ranks long before."""
REJOIN_SECONDS = 120.0
"""Time announced to the watchdog from the loss of a peer to the first step."""
_POLL_SECONDS = 0.02


def rejoin(environment: RankEnvironment, device: Device) -> tuple[RankEnvironment, Groups]:
    """Join the others; returns the environment of the generation in which all joined, and its groups.

    Raises:
        LostPeerError: The gang did not join, and the keeper sent no rejoin message.
    """
    while True:
        now = _in_generation(environment, read_rejoin(environment.home))
        try:
            return now, rendezvous.join(now, device, is_over=partial(_is_over, now))
        except LostPeerError as error:
            environment = await_next_generation(now, str(error))


def await_next_generation(environment: RankEnvironment, reason: str) -> RankEnvironment:
    """Wait for the keeper's message about the generation after that of `environment`, which ended for `reason`.

    Raises:
        LostPeerError: No message came.
    """
    heartbeat.expect(REJOIN_SECONDS)
    deadline = time.monotonic() + MESSAGE_SECONDS
    while not _is_over(environment):
        if time.monotonic() > deadline:
            raise LostPeerError(
                f"rank {environment.rank} lost a peer in generation {environment.generation} ({reason}), and within "
                f"{MESSAGE_SECONDS:.0f} s got no rejoin message from its keeper; the gang restarts from its last "
                "checkpoint"
            )
        time.sleep(_POLL_SECONDS)
    return _in_generation(environment, read_rejoin(environment.home))


def _is_over(environment: RankEnvironment) -> bool:
    """Whether a newer generation was named."""
    message = read_rejoin(environment.home)
    return message is not None and message.generation > environment.generation


def _in_generation(environment: RankEnvironment, message: RejoinMessage | None) -> RankEnvironment:
    """The environment of the generation in `message`, if it is newer."""
    if message is None or message.generation <= environment.generation:
        return environment
    return replace(environment, generation=message.generation, master_port=message.port)
