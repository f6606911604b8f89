"""Calls of torch's distributed checkpoint, with its exceptions made ours.

`CheckpointException` is a `BaseException` and passes every `except Exception`; this is the one place that catches it.
"""

import warnings
from typing import Any

from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import LoadPlanner, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

from gangline.checkpoint.peers import Peers
from gangline.errors import GanglineError, IntegrityError, StorageError, TrainingError

_ALONE = "torch.distributed is disabled, unavailable or uninitialized"


def save(state: dict[str, Any], *, writer: StorageWriter, planner: SavePlanner, peers: Peers) -> None:
    """Plan, deduplicate and write on all ranks; raises the same `GanglineError` on all."""
    _expect_to_be_alone(peers)
    try:
        state_dict_saver.save(
            state, storage_writer=writer, planner=planner, process_group=peers.group, no_dist=peers.alone
        )
    except CheckpointException as error:
        raise _ours(error) from error


def load(state: dict[str, Any], *, reader: StorageReader, planner: LoadPlanner, peers: Peers) -> None:
    """Plan and read into the tensors of `state`, in place; raises the same `GanglineError` on all ranks."""
    _expect_to_be_alone(peers)
    try:
        state_dict_loader.load(
            state, storage_reader=reader, planner=planner, process_group=peers.group, no_dist=peers.alone
        )
    except CheckpointException as error:
        raise _ours(error) from error


def _expect_to_be_alone(peers: Peers) -> None:
    if peers.alone:
        warnings.filterwarnings("ignore", message=_ALONE, category=UserWarning)


def _ours(error: CheckpointException) -> GanglineError:
    """The error that decides: what is damaged or stale before what is away, the lowest rank first."""
    found = [(rank, _translate(rank, wrapped[0])) for rank, wrapped in sorted(error.failures.items())]
    return min(found, key=lambda each: (_weight(each[1]), each[0]))[1]


def _weight(error: GanglineError) -> int:
    return 0 if isinstance(error, IntegrityError) else 2 if isinstance(error, StorageError) else 1


def _translate(rank: int, error: BaseException) -> GanglineError:
    if isinstance(error, GanglineError):
        return error
    if isinstance(error, CheckpointException):
        return _ours(error)
    if isinstance(error, OSError):
        return StorageError(f"rank {rank}: {error}")
    return TrainingError(f"rank {rank}: {type(error).__name__}: {error}")
