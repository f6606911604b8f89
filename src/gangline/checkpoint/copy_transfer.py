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
    """One file on its way; ranks are those of the group."""

    key: str
    size_bytes: int
    source: int
    target: int


def transfer_files(moves: Sequence[FileTransfer], copies: NodeCopies, peers: Peers) -> None:
    """Carry out `moves`, the same list on every rank; collective.

    All that is sent is on its way before anything is awaited, straight from the file's own pages: no order of moves can
    deadlock.

    Raises:
        StorageError: On all ranks, where one could not read or keep a file.
    """
    group = peers.group
    if group is None or not moves:
        return
    trouble: list[StorageError] = []
    sent = [
        dist.isend(piece, dist.get_global_rank(group, each.target), group=group)
        for each in moves
        if each.source == peers.rank
        for piece in _pieces_of(each, copies, trouble)
    ]
    for each in moves:
        if each.target == peers.rank:
            pieces = _received(each, dist.get_global_rank(group, each.source), group)
            _keep(each, pieces, copies, trouble)
    for work in sent:
        assert work is not None
        work.wait()
    peers.together(lambda: _raise_first(trouble))


def _sizes(size: int) -> Iterator[int]:
    for start in range(0, size, PIECE_BYTES):
        yield min(PIECE_BYTES, size - start)


def _pieces_of(each: FileTransfer, copies: NodeCopies, trouble: list[StorageError]) -> Iterable[Tensor]:
    """The file's bytes; of one that cannot be read zeros, because the other side waits for them."""
    try:
        whole = torch.from_file(str(copies.path(each.key)), shared=False, size=each.size_bytes, dtype=torch.uint8)
    except (RuntimeError, OSError) as error:
        trouble.append(StorageError(f"the copy of {each.key} cannot be read: {error}"))
        whole = torch.zeros(each.size_bytes, dtype=torch.uint8)
    return torch.split(whole, PIECE_BYTES)


def _received(each: FileTransfer, source: int, group: dist.ProcessGroup) -> Iterator[memoryview]:
    """Pieces as they come; the next one is on its way while a piece is kept."""
    sizes = list(_sizes(each.size_bytes))
    buffers = torch.empty((2, max(sizes, default=0)), dtype=torch.uint8)
    waiting = [_ask(buffers[0, :size], source, group) for size in sizes[:1]]
    for number, size in enumerate(sizes):
        waiting.pop().wait()
        waiting += [_ask(buffers[(number + 1) % 2, :next_], source, group) for next_ in sizes[number + 1 : number + 2]]
        yield buffers[number % 2, :size].numpy().data


def _ask(buffer: Tensor, source: int, group: dist.ProcessGroup) -> dist.Work:
    work = dist.irecv(buffer, source, group=group)
    assert work is not None
    return work


def _keep(each: FileTransfer, pieces: Iterator[memoryview], copies: NodeCopies, trouble: list[StorageError]) -> None:
    try:
        copies.write(each.key, pieces)
    except StorageError as error:
        trouble.append(error)
        for _ in pieces:
            pass  # what is on its way must be taken


def _raise_first(trouble: list[StorageError]) -> None:
    if trouble:
        raise trouble[0]
