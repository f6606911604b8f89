"""Measurements of a rank's device: matrix products, memory moves and messages, on all ranks at the same time.

Other processes on the machine must count as little as possible, because they may end before the gang runs: on CPUs
computation is timed by thread time, and messages by their lower quartile. Operands are outside the caches, as in a
model, where many other operations run in between.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median, quantiles
from typing import get_args

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gangline.procfs import processor_name
from gangline.spec.devices import AttentionRate, Exchange, ExchangeRate, MatmulRate, MoveRate, Rates
from gangline.spec.plan import Device, Precision
from gangline.spec.profile import Attention
from gangline.train.runtime.torch_collectives import all_gather_single, reduce_scatter_single

BATCHES = 3
"""Batches of each operation that computes; their median counts."""
MOST_CALLS = 40
"""Calls of one batch."""
MESSAGES = 20
"""Messages of each kind and size."""
MOVED_BYTES = tuple(2**power for power in (12, 15, 18, 20, 22, 24))
STREAMED_BYTES = 2**26
"""Larger than the caches of processors."""
RING_BYTES = 2**25
"""Operands that an operation cycles through, so that none is in a cache from the last call."""
STREAMED_CACHES, RING_CACHES = 32, 4
"""Multiples of a GPU's cache, if that is more."""
MOST_HEADS, ENOUGH_FLOPS = {"cpu": 16, "cuda": 512}, {"cpu": 2e8, "cuda": 4e11}
"""Heads and flops of attention in one call: about a millisecond, more if a single head takes more. One head alone
leaves most of a GPU idle."""
ROW = 512
"""Elements in a row of a sum over samples."""
SENT_BYTES = tuple(2**power for power in (10, 14, 18, 21, 23))
Call = Callable[[], object]
_WIDTHS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchRequest:
    """A request for a measurement."""

    device: Device
    precision: Precision
    ranks: int
    cores: int
    matrices: list[list[int]]
    attention: list[list[int]] = field(default_factory=list)
    """Queries, keys, width of a head, and 1 if causal."""


class DeviceBench:
    """Measurements of one rank; all ranks make the same calls, and each figure is their mean."""

    def __init__(self, request: BenchRequest, device: torch.device) -> None:
        self._request, self._device = request, device
        self._dtype = _WIDTHS[request.precision]
        cache = cache_bytes(device)
        self._streamed = max(STREAMED_BYTES, STREAMED_CACHES * cache)
        self._ring = max(RING_BYTES, RING_CACHES * cache)
        self._made = 0
        """Bytes of the operands of the current measurement."""

    def rates(self, backend: str) -> Rates:
        """Measure everything that the request names; on several ranks collective. `backend` is recorded."""
        request = self._request
        return Rates(
            device=request.device,
            device_name=device_name(self._device),
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            cores=request.cores,
            ranks=request.ranks,
            precision=request.precision,
            backend=backend if request.ranks > 1 else "",
            memory_bytes_per_second=self._streamed / self._stream(),
            products=tuple(self._products()),
            attention=tuple(self._attended()),
            moves=tuple(MoveRate(size_bytes=size, seconds=self._move(size)) for size in self._moved_bytes),
            messages=tuple(self._messages()) if request.ranks > 1 else (),
        )

    @property
    def _moved_bytes(self) -> tuple[int, ...]:
        """Sizes to move: on a GPU only the smallest, which measures a launch; `_stream` measures the rest."""
        return MOVED_BYTES[:1] if self._device.type == "cuda" else MOVED_BYTES

    def _products(self) -> Iterator[MatmulRate]:
        for rows, inner, columns in self._request.matrices:
            seconds = self._seconds(partial(self._product, rows, inner, columns))
            yield MatmulRate(
                rows=rows, inner=inner, columns=columns, flops_per_second=2 * rows * inner * columns / seconds
            )

    def _product(self, rows: int, inner: int, columns: int) -> Call:
        tensor, right = self._some(rows, inner), self._some(inner, columns)
        return lambda: tensor @ right

    def _attended(self) -> Iterator[AttentionRate]:
        """Measure with as few heads as give a stable time."""
        most, enough = MOST_HEADS[self._device.type], ENOUGH_FLOPS[self._device.type]
        for queries, keys, width, is_causal in self._request.attention:
            one = Attention(heads=1, queries=queries, keys=keys, width=width, is_causal=bool(is_causal))
            heads = max(1, min(most, round(enough / one.flops)))
            seconds = self._seconds(partial(self._attend, replace(one, heads=heads)))
            yield AttentionRate(
                queries=queries, keys=keys, width=width, is_causal=one.is_causal,
                flops_per_second=heads * one.flops / seconds,
            )  # fmt: skip

    def _attend(self, request: Attention) -> Call:
        query, key, value = (
            self._some(1, request.heads, places, request.width).requires_grad_()
            for places in (request.queries, request.keys, request.keys)
        )
        slope = self._some(1, request.heads, request.queries, request.width)

        def both_passes() -> object:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=request.is_causal)
            return torch.autograd.grad(mixed, (query, key, value), slope)

        return both_passes

    def _stream(self) -> float:
        """Seconds to read two tensors and write one."""

        def add_in_place() -> Call:
            some = self._some(self._streamed // (3 * self._dtype.itemsize))
            other = some.clone()
            return lambda: some.add_(other)

        return self._seconds(add_in_place)

    def _move(self, size: int) -> float:
        """Mean seconds of operations of a model that are no products: additions, activations forward and backward,
        transposed copies, sums over samples."""
        third, half, all_of_it = (size // (parts * self._dtype.itemsize) for parts in (3, 2, 1))
        side = max(1, int(half**0.5))

        def add() -> Call:
            some, other = self._some(third), self._some(third)
            return lambda: some + other

        def activate() -> Call:
            some = self._some(half)
            return lambda: torch.nn.functional.gelu(some)

        def activate_back() -> Call:
            some, other = self._some(third), self._some(third)
            return lambda: torch.ops.aten.gelu_backward(some, other)

        def turn() -> Call:
            some = self._some(side, side)
            return lambda: some.t().contiguous()

        def sum_up() -> Call:
            some = self._some(max(1, all_of_it // ROW), min(ROW, all_of_it))
            return lambda: some.sum(0)

        kinds = (add, activate, activate_back, turn, sum_up)
        return sum(self._seconds(kind) for kind in kinds) / len(kinds)

    def _messages(self) -> Iterator[ExchangeRate]:
        for kind in get_args(Exchange):
            for size in SENT_BYTES:
                yield ExchangeRate(
                    kind=kind, size_bytes=size, seconds=self._message_seconds(self._exchange(kind, size))
                )

    def _exchange(self, kind: Exchange, size: int) -> Call:
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
        """A tensor; random on a GPU, whose products are faster with equal values, because they take less power."""
        make = torch.randn if self._device.type == "cuda" else torch.ones
        made = make(shape, dtype=self._dtype, device=self._device)
        self._made += made.nbytes
        return made

    def _seconds(self, make: Callable[[], Call]) -> float:
        """Seconds of a call that `make` returns; each has its own tensors, its result is held until the next batch."""
        clock = time.thread_time if self._device.type == "cpu" else time.perf_counter
        calls = self._enough(make)
        results: list[object] = [None] * len(calls)

        def all_of_them() -> None:
            for number, call in enumerate(calls):
                results[number] = call()

        self._barrier()
        all_of_them()
        return self._mean(median(self._timed(all_of_them, clock) / len(calls) for _ in range(BATCHES)))

    def _enough(self, make: Callable[[], Call]) -> list[Call]:
        """Make as many calls as the ring has room for."""
        self._made = 0
        calls = [make()]
        count = min(MOST_CALLS, self._ring // self._made)
        return calls + [make() for _ in range(count - 1)]

    def _message_seconds(self, call: Call) -> float:
        """Seconds of a message; all ranks make the same number of calls."""
        self._barrier()
        call()
        return self._mean(quantiles((self._timed(call, time.perf_counter) for _ in range(MESSAGES)), n=4)[0])

    def _timed(self, call: Call, clock: Callable[[], float]) -> float:
        self._synchronize()
        start = clock()
        call()
        self._synchronize()
        return clock() - start

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _barrier(self) -> None:
        if self._request.ranks > 1:
            dist.barrier()

    def _mean(self, seconds: float) -> float:
        if self._request.ranks == 1:
            return seconds
        tensor = torch.tensor([seconds], dtype=torch.float64, device=self._device)
        dist.all_reduce(tensor)
        return float(tensor) / self._request.ranks


def cache_bytes(device: torch.device) -> int:
    """Bytes of a GPU's last-level cache; 0 for a processor, whose caches are smaller than the constants here."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def device_name(device: torch.device) -> str:
    """Name that the driver has for a GPU, or the system for its processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor_name()
