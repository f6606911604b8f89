"""Gather, compute and scatter of micro-groups as events: one stream of collectives, hosts that run on. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTimes:
    """Seconds of one micro-group."""

    gather_seconds: float
    compute_seconds: tuple[float, ...]
    """Computing time of each host."""
    scatter_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineTimes:
    """Seconds of a pipeline, and what they are made of."""

    total_seconds: float
    """Time from the first gather to the end of the last scatter."""
    compute_seconds: float
    """Computing time of the host that computes most."""
    exchange_seconds: float
    """Duration of all gathers and scatters, hidden or not."""

    @property
    def exposed_seconds(self) -> float:
        """Time beyond the compute of the busiest host: exchange that is not hidden, and waits of hosts for it."""
        return self.total_seconds - self.compute_seconds


def unshared(seconds: float) -> PipelineTimes:
    """Updates of whole matrices, for which nothing is exchanged."""
    return PipelineTimes(total_seconds=seconds, compute_seconds=seconds, exchange_seconds=0.0)


def run_pipeline(groups: Sequence[GroupTimes]) -> PipelineTimes:
    """Gather 0, then for each group g: gather g + 1, scatter g, in this order on one stream.

    A host starts on a group once it is gathered and the host has ended the one before; a scatter waits for all hosts.
    Two sets of staging buffers are enough: gather g + 2 follows scatter g on the stream.
    """
    stream = groups[0].gather_seconds if groups else 0.0
    gathered = stream
    hosts = [0.0] * (len(groups[0].compute_seconds) if groups else 0)
    for at, group in enumerate(groups):
        hosts = [max(free, gathered) + each for free, each in zip(hosts, group.compute_seconds, strict=True)]
        if at + 1 < len(groups):
            stream = gathered = stream + groups[at + 1].gather_seconds
        stream = max(stream, *hosts) + group.scatter_seconds
    return PipelineTimes(
        total_seconds=stream,
        compute_seconds=max(
            (sum(each) for each in zip(*(g.compute_seconds for g in groups), strict=True)), default=0.0
        ),
        exchange_seconds=sum(group.gather_seconds + group.scatter_seconds for group in groups),
    )
