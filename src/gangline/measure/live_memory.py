"""Memory of a simulated process: bytes of every live storage that operations allocate.

Storages are counted, not tensors: views share one, and FSDP2 empties and fills the same one again. Wrapper subclasses
such as DTensor are counted by the tensors inside. Copies between device and host are simulated on a CPU, where torch
omits them: FSDP2 requests them with `Tensor.to(device, non_blocking=...)`.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from gangline.measure.operation_counts import size_bytes

_plain, _functional = torch.ops.c10d, torch.ops._c10d_functional  # noqa: SLF001  # operators are known by these names
_GATHER = frozenset({_plain._allgather_base_.default, _functional.all_gather_into_tensor.default})
_SCATTER = frozenset({_functional.reduce_scatter_tensor.default})
_SCATTER_INTO = frozenset({_plain._reduce_scatter_base_.default})


@dataclass
class MemoryUse:
    """Bytes of one kind of memory."""

    live: int = 0
    peak: int = 0

    def change(self, size_bytes: int) -> None:
        """Allocate `size_bytes`, or free them if negative."""
        self.live += size_bytes
        self.peak = max(self.peak, self.live)


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its hooks have no types
    """Counts the storages of `fake`, which is entered before it; fake tensors of other modes do not count."""

    def __init__(self, fake: FakeTensorMode, *, gloo: bool) -> None:
        """`gloo`: collectives allocate copies in host memory, as gloo does."""
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._fake, self._gloo = fake, gloo
        self.device, self.host = MemoryUse(), MemoryUse()
        """Memory of the device that computes, and of its host."""
        self._place = self.device
        self._counts_none = False
        self._sizes: Any = WeakIdKeyDictionary(ref_type=weakref.ref)  # storage -> its bytes as counted, and where

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(each) for each in types):
            return NotImplemented
        if func is _functional.wait_tensor.default:  # it would copy tensors without values
            return args[0]
        result = func(*args, **(kwargs or {}))
        self.count(_tensors(result))
        if self._gloo:
            self.device.peak = max(self.device.peak, self.device.live + _copied(func, args, result))
        return result

    def count(self, tensors: Iterable[Tensor]) -> None:
        """Count the storages of `tensors`, each once."""
        if self._counts_none:
            return
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and tensor.fake_mode is self._fake:
                self._take(tensor.untyped_storage())

    def forget_peak(self) -> None:
        """Restart the peak at the live bytes."""
        for memory_use in (self.device, self.host):
            memory_use.peak = memory_use.live

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """Inside, new storages count as host memory."""
        self._place, before = self.host, self._place
        try:
            yield
        finally:
            self._place = before

    def move_to_host(self, tensors: Iterable[Tensor]) -> None:
        """Count the storages of `tensors` as host memory from now on."""
        for tensor in tensors:
            counted = self._sizes[tensor.untyped_storage()]
            size = counted.size_bytes
            self._change(counted, 0)
            counted.place = self.host
            self._change(counted, size)

    def counts(self, tensor: Tensor) -> bool:
        """Whether the storage of `tensor` is counted."""
        return tensor.untyped_storage() in self._sizes

    def is_on_host(self, tensor: Tensor) -> bool:
        """Whether `tensor`, which is counted, is in host memory."""
        return self._sizes[tensor.untyped_storage()].place is self.host

    @contextmanager
    def resizes(self) -> Iterator[None]:
        """Inside, `UntypedStorage.resize_` is counted, which is no operator."""
        original = UntypedStorage.resize_

        @wraps(original)
        def resize(storage: UntypedStorage, size: int) -> None:
            original(storage, size)
            if storage in self._sizes:
                self._change(self._sizes[storage], storage.nbytes())

        UntypedStorage.resize_ = resize  # type: ignore[assignment,method-assign]  # a bound method by another name
        try:
            yield
        finally:
            UntypedStorage.resize_ = original  # type: ignore[method-assign]  # likewise

    @contextmanager
    def shapes(self) -> Iterator[None]:
        """Inside, tensors that torch allocates to infer shapes of DTensors do not count, although they are of `fake`.

        torch allocates whole tensors for each operation that is not cached, such as updates in torch 2.11.
        """
        original = ShardingPropagator._propagate_tensor_meta_non_cached  # noqa: SLF001  # the only place that knows it

        @wraps(original)
        def propagate(propagator: ShardingPropagator, schema: Any) -> Any:
            self._counts_none, before = True, self._counts_none
            try:
                return original(propagator, schema)
            finally:
                self._counts_none = before

        ShardingPropagator._propagate_tensor_meta_non_cached = propagate  # type: ignore[assignment,method-assign]  # noqa: SLF001  # for as long as this runs
        try:
            yield
        finally:
            ShardingPropagator._propagate_tensor_meta_non_cached = original  # type: ignore[method-assign]  # noqa: SLF001  # as it was before

    def _take(self, storage: UntypedStorage) -> None:
        if storage in self._sizes:
            return
        self._sizes[storage] = counted = _Counted(self._place)
        self._change(counted, storage.nbytes())
        weakref.finalize(storage, partial(self._change, counted, 0))

    @staticmethod
    def _change(counted: "_Counted", to: int) -> None:
        counted.place.change(to - counted.size_bytes)
        counted.size_bytes = to


@dataclass
class _Counted:
    """Bytes of a storage, and the memory in which they count."""

    place: MemoryUse
    size_bytes: int = 0


def _copied(func: Any, args: Any, result: Any) -> int:
    """Bytes that gloo allocates during a collective: a second copy of what it gathers or scatters."""
    if func in _GATHER:
        return size_bytes(_tensors(result)[:1])
    if func in _SCATTER:
        return size_bytes(args[:1])
    if func in _SCATTER_INTO:
        return size_bytes(args[1:2])
    return 0


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


@contextmanager
def simulate_host_copies(memory: LiveMemory) -> Iterator[None]:
    """Inside, `Tensor.to` copies tensors that are on the host to the device, and others to the host."""
    original = Tensor.to

    @wraps(original)
    def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        moved = original(tensor, *args, **kwargs)
        if moved is not tensor or "non_blocking" not in kwargs or not memory.counts(tensor):
            return moved
        if memory.is_on_host(tensor):
            return tensor.clone()
        with memory.on_host():
            return tensor.clone()

    Tensor.to = to  # type: ignore[assignment,method-assign]  # a bound method by another name
    try:
        yield
    finally:
        del Tensor.to  # what it inherits is there again
