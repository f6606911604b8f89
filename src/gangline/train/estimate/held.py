"""What a process that computes nothing would hold: bytes of every storage that operations make, while it lives.

Counted are storages, not tensors: views share one, and FSDP2 empties and fills the same one again. A subclass that
holds other tensors, as pieces of a whole do, is let through to the operations on these.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from gangline.train.estimate.watch import size_bytes

_plain, _functional = torch.ops.c10d, torch.ops._c10d_functional  # noqa: SLF001  # operators are known by these names
_GATHER = frozenset({_plain._allgather_base_.default, _functional.all_gather_into_tensor.default})
_SCATTER = frozenset({_functional.reduce_scatter_tensor.default})
_SCATTER_INTO = frozenset({_plain._reduce_scatter_base_.default})


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its hooks have no types
    """Follows what happens under `fake`, which is entered before it; fake tensors of others are no memory."""

    def __init__(self, fake: FakeTensorMode, *, gloo: bool) -> None:
        """`gloo`: collectives go through copies in host memory, as gloo makes them."""
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._fake, self._gloo = fake, gloo
        self.live = self.peak = 0
        self._sizes: Any = WeakIdKeyDictionary(ref_type=weakref.ref)  # storage -> one number, its bytes as counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(each) for each in types):
            return NotImplemented
        if func is _functional.wait_tensor.default:  # without values it would copy; what is waited for is the same
            return args[0]
        result = func(*args, **(kwargs or {}))
        self.count(_tensors(result))
        if self._gloo:
            self.peak = max(self.peak, self.live + _copied(func, args, result))
        return result

    def count(self, tensors: Iterable[Tensor]) -> None:
        """Storages of `tensors`, each once; those of a subclass that holds others are its own affair."""
        for each in tensors:
            if isinstance(each, FakeTensor) and each.fake_mode is self._fake:
                self._take(each.untyped_storage())

    def forget_peak(self) -> None:
        """From here on the peak is that of what comes."""
        self.peak = self.live

    @contextmanager
    def resizes(self) -> Iterator[None]:
        """Inside, storages that are emptied and filled are seen; no operation says so."""
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

    def _take(self, storage: UntypedStorage) -> None:
        if storage in self._sizes:
            return
        size = [0]
        self._sizes[storage] = size
        self._change(size, storage.nbytes())
        weakref.finalize(storage, partial(self._change, size, 0))

    def _change(self, size: list[int], to: int) -> None:
        self.live += to - size[0]
        self.peak = max(self.peak, self.live)
        size[0] = to


def _copied(func: Any, args: Any, result: Any) -> int:
    """Bytes that gloo allocates while a collective is under way: what it gathers, once more; what it scatters."""
    if func in _GATHER:
        return size_bytes(_tensors(result)[:1])
    if func in _SCATTER:
        return size_bytes(args[:1])
    if func in _SCATTER_INTO:
        return size_bytes(args[1:2])
    return 0


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]
