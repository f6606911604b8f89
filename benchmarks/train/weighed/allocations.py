"""The peak of torch's allocator from its own reports, each with an address.

Reports of releases are lost where a thread of a communicator lets go of a tensor last: it does so outside of anything
that is profiled. A sum of all reports then grows with every collective. So an allocation without a release counts for
good only where a tensor still lies there when the reports end; all others last until the next collective is done.
"""

import bisect
import gc
from collections.abc import Iterator
from typing import Any

import torch

_Report = tuple[int, int, int]
"""Time, address, bytes: below 0 for a release."""


def peak_of(tree: Any) -> int:
    """Bytes, of `experimental_event_tree()`; what is alive now must be what was when it was taken."""
    reports = sorted(_reports(tree), key=lambda each: each[0])
    lasting = _lasting(reports)
    lost = [each for number, each in enumerate(reports) if each[2] > 0 and number not in lasting]
    kept = [each for number, each in enumerate(reports) if each[2] < 0 or number in lasting]
    held: dict[int, int] = {}
    live = peak = 0
    for _, address, size in sorted(kept + _until_used(lost, tree), key=lambda each: each[0]):
        if size < 0:
            live -= held.pop(address, 0)
            continue
        held[address] = size
        live += size
        peak = max(peak, live)
    return peak


def _until_used(lost: list[_Report], tree: Any) -> list[_Report]:
    """`lost` and a release of each when the first collective is done that begins after it: its own, or one before."""
    spans = sorted((each.start_time_ns, each.end_time_ns) for each in _events(tree) if each.name.startswith("gloo:"))
    found = []
    for own, (begin, _, size) in enumerate(lost, start=1):
        place = bisect.bisect_left(spans, (begin, 0))
        end = spans[place][1] if place < len(spans) else begin
        found += [(begin, -own, size), (end, -own, -size)]  # below 0: no address
    return found


def _events(tree: Any) -> Iterator[Any]:
    todo = list(tree)
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        yield event


def _reports(tree: Any) -> Iterator[_Report]:
    for event in _events(tree):
        if hasattr(event.extra_fields, "alloc_size"):
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size


def _lasting(reports: list[_Report]) -> set[int]:
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
