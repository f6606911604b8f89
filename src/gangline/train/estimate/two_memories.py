"""Copies between a device and its host, made where both are one memory: on CPUs torch leaves out those that do nothing.

FSDP2 asks for each of them by `Tensor.to(device, non_blocking=...)`: a shard goes to the device before it is gathered,
the shard of a gradient to the host when it is reduced.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch import Tensor

from gangline.train.estimate.held import Held


@contextmanager
def two_memories(held: Held) -> Iterator[None]:
    """Inside, what waits on the host by `held` is copied to the device, and all else to the host."""
    original = Tensor.to

    @wraps(original)
    def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        moved = original(tensor, *args, **kwargs)
        if moved is not tensor or "non_blocking" not in kwargs or not held.counts(tensor):
            return moved
        if held.is_on_host(tensor):
            return tensor.clone()
        with held.on_host():
            return tensor.clone()

    Tensor.to = to  # type: ignore[assignment,method-assign]  # a bound method by another name
    try:
        yield
    finally:
        del Tensor.to  # what it inherits is there again
