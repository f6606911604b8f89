"""The peak of torch's allocator from its own reports, each with an address.

Reports of releases are lost where a thread of a communicator lets go of a tensor last: it does so outside of anything
that is profiled. A sum of all reports then grows with every collective. So an allocation without a release counts for
good only where a tensor still lies there when the reports end; all others lasted for the call that made them.
"""

import gc
from collections.abc import Iterator
from typing import Any

import torch


def peak_of(tree: Any) -> int:
    """Bytes, of `experimental_event_tree()`; what is alive now must be what was when it was taken."""
    reports = sorted(_reports(tree), key=lambda each: each[0])
    lasting = _lasting(reports)
    held: dict[int, int] = {}
    live = peak = 0
    for number, (_, address, size) in enumerate(reports):
        if size < 0:
            live -= held.pop(address, 0)
            continue
        peak = max(peak, live + size)
        if number in lasting:
            held[address] = size
            live += size
    return peak


def _reports(tree: Any) -> Iterator[tuple[int, int, int]]:
    """Time, address, bytes: below 0 for a release."""
    todo = list(tree)
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        if hasattr(event.extra_fields, "alloc_size"):
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size


def _lasting(reports: list[tuple[int, int, int]]) -> set[int]:
    """Numbers of the allocations whose release was reported before their address was given out again, or is to come."""
    found, last = set(), dict[int, int]()
    for number, (_, address, size) in enumerate(reports):
        if size > 0:
            last[address] = number
        elif address in last:
            found.add(last.pop(address))
    alive = _alive()
    return found | {number for address, number in last.items() if address in alive}


def _alive() -> set[int]:
    """Addresses of all tensors that Python knows of, and of gradients, which it may not have looked at yet."""
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    tensors += [each.grad for each in tensors if each.is_leaf and each.grad is not None]
    return {address for each in tensors for address in _addresses(each)}


def _addresses(tensor: torch.Tensor) -> list[int]:
    inner = getattr(tensor, "_local_tensor", tensor)
    try:
        return [inner.untyped_storage().data_ptr()]
    except RuntimeError:  # it has no storage of its own
        return []
