"""Transfer of copied checkpoint files from rank to rank over the gang's gloo group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.peers import Peers
from gangline.errors import StorageError

PIECE_BYTES = 16 * 2**20


@dataclass(frozen=True, order=True, slots=True)
class FileTransfer:
    """One file to send; ranks are those of the group."""

    key: str
    size_bytes: int
    source: int
    target: int


def transfer_files(transfers: Sequence[FileTransfer], copies: NodeCopies, peers: Peers) -> None:
    """Carry out `transfers`, the same list on every rank; collective.

    All sends are started before any is awaited, from the pages of the file: no order of transfers can deadlock.

    Raises:
        StorageError: On all ranks, if one could not read or write a file.
    """
    group = peers.group
    if group is None or not transfers:
        return
    errors: list[StorageError] = []
    sent = [
        dist.isend(piece, dist.get_global_rank(group, file_transfer.target), group=group)
        for file_transfer in transfers
        if file_transfer.source == peers.rank
        for piece in _pieces_of(file_transfer, copies, errors)
    ]
    for transfer in transfers:
        if transfer.target == peers.rank:
            pieces = _receive_pieces(transfer, dist.get_global_rank(group, transfer.source), group)
            _write(transfer, pieces, copies, errors)
    for work in sent:
        assert work is not None
        work.wait()
    peers.run_on_all(lambda: _raise_first(errors))


def _pieces_of(each: FileTransfer, copies: NodeCopies, errors: list[StorageError]) -> Iterable[Tensor]:
    """The file's bytes; zeros if it cannot be read, because the receiver waits for them."""
    try:
        whole = torch.from_file(str(copies.path(each.key)), shared=False, size=each.size_bytes, dtype=torch.uint8)
    except (RuntimeError, OSError) as error:
        errors.append(StorageError(f"the copy of {each.key} cannot be read: {error}"))
        whole = torch.zeros(each.size_bytes, dtype=torch.uint8)
    return torch.split(whole, PIECE_BYTES)


def _receive_pieces(each: FileTransfer, source: int, group: dist.ProcessGroup) -> Iterator[memoryview]:
    """Pieces as they arrive; the next one is received while a piece is written."""
    sizes = [min(PIECE_BYTES, each.size_bytes - start) for start in range(0, each.size_bytes, PIECE_BYTES)]
    buffers = torch.empty((2, max(sizes, default=0)), dtype=torch.uint8)
    waiting = [_receive(buffers[0, :size], source, group) for size in sizes[:1]]
    for number, size in enumerate(sizes):
        waiting.pop().wait()
        waiting += [
            _receive(buffers[(number + 1) % 2, :next_], source, group) for next_ in sizes[number + 1 : number + 2]
        ]
        yield buffers[number % 2, :size].numpy().data


def _receive(buffer: Tensor, source: int, group: dist.ProcessGroup) -> dist.Work:
    work = dist.irecv(buffer, source, group=group)
    assert work is not None
    return work


def _write(each: FileTransfer, pieces: Iterator[memoryview], copies: NodeCopies, errors: list[StorageError]) -> None:
    try:
        copies.write(each.key, pieces)
    except StorageError as error:
        errors.append(error)
        for _ in pieces:
            pass  # what was sent must be received


def _raise_first(errors: list[StorageError]) -> None:
    if errors:
        raise errors[0]
