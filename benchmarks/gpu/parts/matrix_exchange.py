"""Packing and unpacking of matrix updates on one of eight hosts, on the device, without the messages between.

Bound: packing, assembling and cutting move their bytes at 70 % of a large stream. The time of a group of 8 x 8 matrices
is shown: the fixed cost of a group.
"""

from typing import Any

from figures import Report
from one_rank import apart
from shapes import Shapes

SHARE = 0.70
HOSTS = 8


def names(_: Shapes) -> tuple[str, ...]:
    return ("bytes moved / stream",)


def run(report: Report, shapes: Shapes) -> None:
    found = apart(measured, shapes)
    report.tell("group", found)
    ratio = found["bytes_per_second"] / found["stream_bytes_per_second"]
    report.add("bytes moved / stream", ratio, at_least=SHARE, source="a stream of this run")


def measured(shapes: Shapes) -> dict[str, Any]:
    """Times of a group with one square matrix for each host, in float32."""
    from machine import seconds, stream_rate

    side = 8192 // shapes.matrix_part
    full, small = (group(shapes, each) for each in (side, HOSTS))
    moved = 6 * 4 * side * side  # packed, assembled, cut: each is read and written once
    took = seconds(full, shapes.device)
    return {
        "side": side, "seconds": took, "bytes_per_second": moved / took, "stream_bytes_per_second": stream_rate(shapes),
        "fixed_seconds": seconds(small, shapes.device),
    }  # fmt: skip


def group(shapes: Shapes, side: int) -> Any:
    import torch

    from gangline.optim.executors.exchange import UpdateExchange
    from gangline.optim.executors.holders import Part, overlap
    from gangline.optim.executors.matrix_executor import HostExchange
    from gangline.optim.plan.matrix import LogicalMatrix

    class LoopbackExchange(UpdateExchange):
        """Packs for eight hosts and returns what it packed."""

        def __init__(self) -> None:
            super().__init__(None)
            self.ranks = HOSTS

    rows, device = side // HOSTS, torch.device(shapes.device)
    parts = [Part(((host * rows, (host + 1) * rows),), (0, side)) for host in range(HOSTS)]
    matrices = [LogicalMatrix(fqn=f"{host}", shape=(side, side)) for host in range(HOSTS)]
    pieces = [[overlap(part, each, device) for part in parts] for each in matrices]
    like = torch.empty(0, device=device)
    exchange = HostExchange(pieces, [each.shape for each in matrices], LoopbackExchange(), like)
    held = {place: torch.randn(rows * side, device=device) for place in range(HOSTS)}
    groups = tuple((place,) for place in range(HOSTS))

    def call() -> None:
        whole = exchange.assemble((0,), exchange.gather(groups, held).wait())
        exchange.received(groups, exchange.scatter(groups, whole).wait())

    return call
