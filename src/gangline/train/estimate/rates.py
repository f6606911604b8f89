"""What the devices of this machine do, measured in seconds by as many processes as a gang has here, all at once.

    python -m gangline.train.estimate.rates < QUESTION.json

takes {"device": "cpu", "precision": "fp32", "ranks": 2, "cores": 2, "matrices": [[rows, inner, columns], ...]} and
prints one JSON object, a `spec.rates.Rates`. One rank measures without messages. Only tensors and text pass between the
processes. Ends with a code of the error tree and its reason on stderr.

Whatever else runs on the machine is to count as little as possible, for it may be gone when the gang runs: on CPUs
computing is timed by the seconds that its thread was given, and of messages the lower quartile counts.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from gangline.errors import TrainingError
from gangline.procfs import processor_name
from gangline.spec.plan import Device, Precision
from gangline.spec.rates import Exchange, Message, Move, Product, Rates
from gangline.train.compat import FileStore, all_gather_single, reduce_scatter_single

SECONDS = 60.0
"""For everything; it takes a few."""
BATCHES = 5
"""Of each operation that computes; their median counts."""
BATCH_SECONDS = 0.004
MOST_REPEATS = 200
MESSAGES = 20
"""Of each kind and size."""
MOVED_BYTES = tuple(2**power for power in (12, 15, 18, 20, 22, 24))
STREAMED_BYTES = 2**26
"""More than caches hold."""
SENT_BYTES = tuple(2**power for power in (10, 14, 18, 21, 23))
_WIDTHS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is to be measured."""

    device: Device
    precision: Precision
    ranks: int
    cores: int
    matrices: list[list[int]]


def main() -> int:
    asked = Asked(**json.load(sys.stdin))
    try:
        rates = measure(asked)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(rates.to_json().decode() + "\n")
    return 0


def measure(asked: Asked) -> Rates:
    """Rates of this machine's devices.

    Raises:
        TrainingError: A process died, or all of them took over a minute.
    """
    context: Any = multiprocessing.get_context("spawn" if asked.device == "cuda" else "fork")  # CUDA outlives no fork
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="gangline-rates-") as folder:
        peers = [
            context.Process(target=_be_rank, args=(rank, asked, folder, there), daemon=True)
            for rank in range(asked.ranks)
        ]
        for peer in peers:
            peer.start()
        there.close()
        try:
            if not here.poll(SECONDS):
                raise TrainingError(f"measuring rates: wanted them within {SECONDS:.0f} s, found none")
            return Rates.from_json(here.recv_bytes())
        except EOFError as error:
            raise TrainingError("measuring rates: a process died; its reason stands above") from error
        finally:
            for peer in peers:
                peer.kill()
                peer.join()


def _be_rank(rank: int, asked: Asked, folder: str, there: Connection) -> None:
    device = torch.device("cuda", rank) if asked.device == "cuda" else torch.device("cpu")
    backend = "nccl" if asked.device == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if asked.ranks > 1:
        store = FileStore(f"{folder}/store", asked.ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=asked.ranks)
    rates = _Bench(asked, device).rates(backend)
    if rank == 0:
        there.send_bytes(rates.to_json())
    os._exit(0)  # as ranks of a gang end: torch's threads may abort an interpreter that winds down


class _Bench:
    """One rank's measurements; all ranks call the same, and each figure is their mean."""

    def __init__(self, asked: Asked, device: torch.device) -> None:
        self._asked, self._device = asked, device
        self._dtype = _WIDTHS[asked.precision]

    def rates(self, backend: str) -> Rates:
        asked = self._asked
        return Rates(
            device=asked.device,
            device_name=_name(self._device),
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            cores=asked.cores,
            ranks=asked.ranks,
            precision=asked.precision,
            backend=backend if asked.ranks > 1 else "",
            memory_bytes_per_second=STREAMED_BYTES / self._stream(),
            products=tuple(self._products()),
            moves=tuple(Move(size_bytes=size, seconds=self._move(size)) for size in MOVED_BYTES),
            messages=tuple(self._messages()) if asked.ranks > 1 else (),
        )

    def _products(self) -> Iterator[Product]:
        for rows, inner, columns in self._asked.matrices:
            left, right = self._some(rows, inner), self._some(inner, columns)
            seconds = self._seconds(lambda left=left, right=right: left @ right)  # type: ignore[misc]  # bound at once
            yield Product(
                rows=rows, inner=inner, columns=columns, flops_per_second=2 * rows * inner * columns / seconds
            )

    def _stream(self) -> float:
        """Two tensors read, one of them written."""
        some = self._some(STREAMED_BYTES // (3 * self._dtype.itemsize))
        other = some.clone()
        return self._seconds(lambda: some.add_(other))

    def _move(self, size: int) -> float:
        """What is not a product in a model: sums, activations forward and back, copies into another order."""
        third, half = size // (3 * self._dtype.itemsize), size // (2 * self._dtype.itemsize)
        side = max(1, int(half**0.5))
        some, other, table = self._some(third), self._some(third), self._some(side, side)
        long = self._some(half)
        kinds = (
            self._seconds(lambda: some + other),
            self._seconds(lambda: torch.nn.functional.gelu(long)),
            self._seconds(lambda: torch.ops.aten.gelu_backward(some, other)),
            self._seconds(lambda: table.t().contiguous()),
        )
        return sum(kinds) / len(kinds)

    def _messages(self) -> Iterator[Message]:
        for kind in get_args(Exchange):
            for size in SENT_BYTES:
                yield Message(kind=kind, size_bytes=size, seconds=self._message_seconds(self._exchange(kind, size)))

    def _exchange(self, kind: Exchange, size: int) -> Callable[[], object]:
        ranks, rank = dist.get_world_size(), dist.get_rank()
        count = max(ranks, size // 4 // ranks * ranks)
        whole = torch.ones(count, device=self._device)
        part = torch.ones(count // ranks, device=self._device)
        if kind == "all_reduce":
            return lambda: dist.all_reduce(whole)
        if kind == "all_gather":
            return lambda: all_gather_single(torch.empty_like(whole), part)
        if kind == "reduce_scatter":
            return lambda: reduce_scatter_single(torch.empty_like(part), whole)
        if kind == "all_to_all":
            return lambda: dist.all_to_all_single(torch.empty_like(whole), whole)
        if rank > 1:
            return lambda: None
        return lambda: dist.send(whole, 1) if rank == 0 else dist.recv(whole, 0)

    def _some(self, *shape: int) -> Tensor:
        return torch.ones(shape, dtype=self._dtype, device=self._device)

    def _seconds(self, call: Callable[[], object]) -> float:
        """Of computing."""
        clock = time.thread_time if self._device.type == "cpu" else time.perf_counter
        self._together()
        call()
        once = self._timed(call, 1, clock)
        repeats = min(MOST_REPEATS, max(1, round(BATCH_SECONDS / max(once, 1e-9))))
        return self._mean(median(self._timed(call, repeats, clock) / repeats for _ in range(BATCHES)))

    def _message_seconds(self, call: Callable[[], object]) -> float:
        """All ranks call equally often."""
        self._together()
        call()
        return self._mean(quantiles((self._timed(call, 1, time.perf_counter) for _ in range(MESSAGES)), n=4)[0])

    def _timed(self, call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
        self._settle()
        start = clock()
        for _ in range(repeats):
            call()
        self._settle()
        return clock() - start

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _together(self) -> None:
        if self._asked.ranks > 1:
            dist.barrier()

    def _mean(self, seconds: float) -> float:
        if self._asked.ranks == 1:
            return seconds
        found = torch.tensor([seconds], dtype=torch.float64, device=self._device)
        dist.all_reduce(found)
        return float(found) / self._asked.ranks


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name()


if __name__ == "__main__":
    sys.exit(main())
