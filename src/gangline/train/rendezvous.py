"""How ranks find each other: static numbers, a store that outlives them, three process groups.

`default` carries the strategy's collectives, `control` small words between the ranks on the CPU, `checkpoint` those of
saves that run beside the training: on one group they would meet in different order and hang.
"""

from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import DistStoreError, ProcessGroup

from gangline.errors import LostPeerError
from gangline.spec.plan import Device
from gangline.train.compat import HashStore, PrefixStore, Store, TCPStore
from gangline.train.environment import RankEnvironment

TIMEOUT = timedelta(minutes=30)
"""Of collectives: far above any step, since the watchdog judges silence first."""
JOIN_TIMEOUT = timedelta(minutes=5)
BACKENDS: dict[Device, str] = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@dataclass(frozen=True, slots=True)
class Groups:
    control: ProcessGroup
    checkpoint: ProcessGroup


def join(environment: RankEnvironment, device: Device) -> Groups:
    """Meet all ranks of this generation; all must call.

    Raises:
        LostPeerError: Somebody did not come; who, where that is known.
    """
    env = environment
    wanted = f"rank {env.rank} wanted {env.world_size} ranks at {env.master_addr}:{env.master_port}"
    try:
        store = TCPStore(env.master_addr, env.master_port, is_master=False, timeout=JOIN_TIMEOUT)
        own = PrefixStore(f"{env.run}/{env.generation}", store)
        own.set(_arrived(env.rank), "yes")
        if late := _late(own, env.world_size):
            raise LostPeerError(f"{wanted}, after {JOIN_TIMEOUT.seconds} s {_names(late)} had not arrived")
        return _make_groups(own, device, rank=env.rank, world_size=env.world_size)
    except RuntimeError as error:  # torch's network errors derive from it
        raise LostPeerError(f"{wanted} within {JOIN_TIMEOUT.seconds} s: {error}") from error


def join_alone(device: Device) -> Groups:
    """A gang of one, without any network: a program started at a desk."""
    return _make_groups(HashStore(), device, rank=0, world_size=1)


def leave() -> None:
    """Give the groups up; local, and no peer needs to be alive."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _late(store: Store, world_size: int) -> list[int]:
    """Waits for all; ranks that did not come in time."""
    try:
        store.wait([_arrived(rank) for rank in range(world_size)], JOIN_TIMEOUT)
    except DistStoreError:
        return [rank for rank in range(world_size) if not store.check([_arrived(rank)])]
    return []


def _arrived(rank: int) -> str:
    return f"arrived/{rank}"


def _names(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _make_groups(store: Store, device: Device, *, rank: int, world_size: int) -> Groups:
    dist.init_process_group(BACKENDS[device], store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)
    return Groups(control=_all_ranks(), checkpoint=_all_ranks())


def _all_ranks() -> ProcessGroup:
    group = dist.new_group(backend="gloo", timeout=TIMEOUT)
    assert isinstance(group, ProcessGroup), "every rank belongs to it"
    return group
