"""Collectives of matrix updates, with what they moved counted; a group of one rank moves nothing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from gangline.optim.executors.torch_names import all_gather_single


@dataclass(slots=True)
class Traffic:
    """What this rank took part in since the start. Bytes are sent by this rank, by the formula of a ring."""

    calls: int = 0
    sent_bytes: float = 0.0
    """Payload and padding; to itself a rank sends nothing."""
    padding_bytes: float = 0.0
    """Part of `sent_bytes`: elements that no matrix has."""
    waited_seconds: float = 0.0
    """Time for which this process was blocked; on a GPU next to nothing, as its stream waits instead."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count what the block takes as waiting."""
        start = perf_counter()
        try:
            yield
        finally:
            self.waited_seconds += perf_counter() - start


@dataclass(slots=True)
class Pending:
    """A collective under way; its output may be read after `wait`."""

    output: Tensor
    traffic: Traffic
    work: dist.Work | None = None
    kept: Tensor | None = None
    """Input, kept until the end."""

    def wait(self) -> Tensor:
        """The output; blocks the stream, on CPUs the process."""
        if self.work is not None:
            with self.traffic.waiting():
                self.work.wait()
        self.work = self.kept = None
        return self.output


class UpdateExchange:
    """Collectives of one group; every rank of it makes the same calls in the same order."""

    def __init__(self, group: ProcessGroup | None) -> None:
        """None: this rank is alone."""
        self.group = group
        self.ranks = 1 if group is None else dist.get_world_size(group)
        self.place = 0 if group is None else dist.get_rank(group)
        self.traffic = Traffic()

    def all_to_all(self, pieces: Sequence[Sequence[Tensor]], like: Tensor, received: Sequence[int]) -> Pending:
        """Send `pieces[r]`, one after the other, to each rank r of the group.

        Args:
            pieces: One dimension each.
            like: Any tensor of their device and dtype.
            received: Elements that come from each rank.

        Returns:
            What came, one rank after the other.
        """
        sizes = [sum(map(len, piece)) for piece in pieces]
        sent = torch.cat([like.new_empty(0), *(part for piece in pieces for part in piece)])
        if self.group is None:
            return Pending(sent, self.traffic)
        away = len(sent) - sizes[self.place]
        self._count(away * sent.element_size())
        output = sent.new_empty(sum(received))
        work = dist.all_to_all_single(output, sent, list(received), sizes, group=self.group, async_op=True)
        return Pending(output, self.traffic, work, sent)

    def broadcast(self, tensor: Tensor, root: int) -> Pending:
        """Send from rank `root` of the group into `tensor` of all others."""
        if self.group is None:
            return Pending(tensor, self.traffic)
        self._count(tensor.numel() * tensor.element_size() / self.ranks * (self.ranks - 1))
        work = dist.broadcast(tensor, group_src=root, group=self.group, async_op=True)
        return Pending(tensor, self.traffic, work)

    def all_gather(self, tensor: Tensor, size: int) -> Pending:
        """`tensor`, padded to `size` elements, of all ranks, one after the other."""
        output = tensor.new_empty(size * self.ranks)
        own = output[self.place * size : (self.place + 1) * size]
        own[: len(tensor)] = tensor
        own[len(tensor) :] = 0
        if self.group is None:
            return Pending(output, self.traffic)
        others = self.ranks - 1
        self._count(others * size * tensor.element_size(), (size - len(tensor)) * others * tensor.element_size())
        return Pending(output, self.traffic, all_gather_single(output, own, group=self.group, async_op=True))

    def reduce(self, tensor: Tensor, root: int) -> Pending:
        """Sum over all ranks, at rank `root` of the group; the others must not read `tensor` any more."""
        if self.group is None:
            return Pending(tensor, self.traffic)
        self._count(tensor.numel() * tensor.element_size() / self.ranks * (self.ranks - 1))
        return Pending(tensor, self.traffic, dist.reduce(tensor, group_dst=root, group=self.group, async_op=True))

    def sum(self, tensor: Tensor) -> Pending:
        """Sum over all ranks, on all of them, in place."""
        if self.group is None:
            return Pending(tensor, self.traffic)
        self._count(2 * tensor.numel() * tensor.element_size() / self.ranks * (self.ranks - 1))
        return Pending(tensor, self.traffic, dist.all_reduce(tensor, group=self.group, async_op=True))

    def largest(self, values: Tensor) -> Tensor:
        """The largest of all ranks, by element; blocks."""
        if self.group is not None:
            with self.traffic.waiting():
                dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)
        return values

    def total(self, values: Tensor) -> Tensor:
        """The sum over all ranks, by element; blocks."""
        if self.group is not None:
            with self.traffic.waiting():
                dist.all_reduce(values, group=self.group)
        return values

    def texts(self, text: str, device: torch.device) -> list[str]:
        """`text` of each rank; for the start, where time does not matter."""
        if self.group is None:
            return [text]
        data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(device)
        size = int(self.largest(torch.tensor([len(data)], device=device)))
        padded = torch.cat([data, data.new_zeros(size - len(data))])
        tensor = padded.new_empty(size * self.ranks)
        all_gather_single(tensor, padded, group=self.group)
        return [bytes(part.tolist()).rstrip(b"\0").decode() for part in torch.split(tensor, size)]

    def _count(self, sent_bytes: float, padding_bytes: float = 0.0) -> None:
        self.traffic.calls += 1
        self.traffic.sent_bytes += sent_bytes
        self.traffic.padding_bytes += padding_bytes
