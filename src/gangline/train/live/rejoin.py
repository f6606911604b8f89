"""Rendezvous of live replicas: in their generation, or in a newer one that the keeper names while they wait.

A rank that dies during rendezvous or recovery is replaced in a later generation, and all ranks move on to it.
"""

import time
from dataclasses import replace
from functools import partial

from gangline.errors import LostPeerError
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.keeper.ipc.rejoin_message import RejoinMessage, read_rejoin
from gangline.spec.plan import Device
from gangline.train import heartbeat
from gangline.train.runtime import rendezvous
from gangline.train.runtime.rendezvous import Groups

MESSAGE_SECONDS = 60.0
"""So long is the keeper's word awaited; a gang that starts anew as a whole ends its ranks long before."""
MEET_SECONDS = 120.0
"""Silence announced from a loss to the first step."""
_LOOK_SECONDS = 0.02


def meet(environment: RankEnvironment, device: Device) -> tuple[RankEnvironment, Groups]:
    """Meet the others; the environment names the generation in which that came about.

    Raises:
        LostPeerError: The gang did not come together, and no word came of where it does.
    """
    while True:
        now = _moved(environment, read_rejoin(environment.home))
        try:
            return now, rendezvous.join(now, device, is_over=partial(_is_over, now))
        except LostPeerError as error:
            environment = await_next_generation(now, str(error))


def await_next_generation(environment: RankEnvironment, reason: str) -> RankEnvironment:
    """Wait for the keeper's word on the generation after that of `environment`, which ended for `reason`.

    Raises:
        LostPeerError: No word came.
    """
    heartbeat.expect(MEET_SECONDS)
    patience = time.monotonic() + MESSAGE_SECONDS
    while not _is_over(environment):
        if time.monotonic() > patience:
            raise LostPeerError(
                f"rank {environment.rank} lost a peer in generation {environment.generation} ({reason}), and within "
                f"{MESSAGE_SECONDS:.0f} s its keeper did not say where to meet its replacement; the gang starts anew "
                "from its last checkpoint"
            )
        time.sleep(_LOOK_SECONDS)
    return _moved(environment, read_rejoin(environment.home))


def _is_over(environment: RankEnvironment) -> bool:
    """Its generation is: a newer one was named."""
    order = read_rejoin(environment.home)
    return order is not None and order.generation > environment.generation


def _moved(environment: RankEnvironment, order: RejoinMessage | None) -> RankEnvironment:
    """To where `order` says, if that is newer."""
    if order is None or order.generation <= environment.generation:
        return environment
    return replace(environment, generation=order.generation, master_port=order.port)
