"""Rendezvous of ranks: fixed rank numbers, a store that outlives them, three process groups."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import DistStoreError, ProcessGroup

from gangline.errors import LostPeerError
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.spec.plan import Device
from gangline.train.runtime.torch_compat import (
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
    abort_all_groups,
    name_groups_from_zero,
    set_timeout,
)

TIMEOUT = timedelta(minutes=30)
"""Timeout of collectives: far above any step, because the watchdog detects silence first."""
JOIN_TIMEOUT = timedelta(minutes=5)
LOOK_TIMEOUT = timedelta(seconds=2)
"""Time between two calls of `is_over`."""
LINK_TIMEOUT = timedelta(seconds=20)
"""Timeout for connections to ranks that have all arrived, one of which may have died since."""
BACKENDS: dict[Device, str] = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True, slots=True)
class Groups:
    """Process groups of all ranks over gloo, apart from the default group: for control messages and for checkpoints."""

    control: ProcessGroup
    checkpoint: ProcessGroup


def join(environment: RankEnvironment, device: Device, *, is_over: Callable[[], bool] | None = None) -> Groups:
    """Meet all ranks of this generation; collective.

    Args:
        environment: Generation, and address of its store.
        device: Device of the collectives.
        is_over: Called every few seconds; True: this generation has ended. None: wait until JOIN_TIMEOUT.

    Raises:
        LostPeerError: A rank did not join; the message names it if it is known. No group is left.
    """
    env = environment
    wanted = f"rank {env.rank} wanted {env.world_size} ranks at {env.master_addr}:{env.master_port}"
    began = time.monotonic()
    wait = _Wait(began, is_over)
    try:
        own = PrefixStore(f"{env.run}/{env.generation}", wait.connect(env.master_addr, env.master_port))
        own.set(_arrived(env.rank), "yes")
        if late := wait.late(own, env.world_size):
            seconds = time.monotonic() - began
            raise LostPeerError(f"{wanted}, after {seconds:.0f} s {_names(late)} had not arrived")
        links = TIMEOUT if is_over is None else LINK_TIMEOUT
        return _make_groups(own, device, rank=env.rank, world_size=env.world_size, links=links)
    except RuntimeError as error:  # torch's network errors derive from it
        if dist.is_initialized():
            abort_all_groups()
        raise LostPeerError(f"{wanted} within {JOIN_TIMEOUT.seconds} s: {error}") from error


def join_alone(device: Device) -> Groups:
    """Groups of one rank, without network, for a program that runs on its own."""
    return _make_groups(HashStore(), device, rank=0, world_size=1)


def leave() -> None:
    """Destroy the groups; local, no peer needs to be alive."""
    if dist.is_initialized():
        dist.destroy_process_group()


@dataclass(frozen=True, slots=True)
class _Wait:
    """Waits for the store and for ranks: in one call, or in short ones with `is_over` between them."""

    began: float
    is_over: Callable[[], bool] | None

    def connect(self, host: str, port: int) -> TCPStore:
        while True:
            try:
                store = TCPStore(host, port, is_master=False, timeout=self._at_a_time)
            except RuntimeError:
                if self._is_in_vain():
                    raise
            else:
                store.set_timeout(JOIN_TIMEOUT)
                return store

    def late(self, store: Store, world_size: int) -> list[int]:
        """Ranks that did not arrive in time."""
        while True:
            try:
                store.wait([_arrived(rank) for rank in range(world_size)], self._at_a_time)
            except DistStoreError:
                if self._is_in_vain():
                    return [rank for rank in range(world_size) if not store.check([_arrived(rank)])]
            else:
                return []

    @property
    def _at_a_time(self) -> timedelta:
        return JOIN_TIMEOUT if self.is_over is None else LOOK_TIMEOUT

    def _is_in_vain(self) -> bool:
        late = time.monotonic() - self.began >= JOIN_TIMEOUT.total_seconds()
        return late or self.is_over is None or self.is_over()


def _arrived(rank: int) -> str:
    return f"arrived/{rank}"


def _names(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _make_groups(store: Store, device: Device, *, rank: int, world_size: int, links: timedelta = TIMEOUT) -> Groups:
    """Create the groups. `links`: timeout for connections; that of collectives is TIMEOUT."""
    name_groups_from_zero()
    dist.init_process_group(BACKENDS[device], store=store, rank=rank, world_size=world_size, timeout=links)
    groups = Groups(control=_all_ranks(links), checkpoint=_all_ranks(links))
    if links != TIMEOUT:
        for group in (dist.group.WORLD, groups.control, groups.checkpoint):
            assert group is not None, "it was made above"
            set_timeout(TIMEOUT, group)
    return groups


def _all_ranks(timeout: timedelta) -> ProcessGroup:
    group = dist.new_group(backend="gloo", timeout=timeout)
    assert isinstance(group, ProcessGroup), "every rank belongs to it"
    return group
