"""Micro-groups of one owner: which host assembles which matrix, in which group, under a ceiling of bytes. Pure.

A matrix that is cut over T ranks is assembled on one of them, its host; each group is one gather, one compute and one
scatter of the pipeline, whose time is that of one stream of collectives and of hosts that run on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.optim.plan.owners import WorkItem, falling, largest_first
from gangline.units import Bytes, Seconds, format_bytes

MicroGroup = tuple[tuple[int, ...], ...]
"""Places of the items of each host."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class HostItem:
    """One matrix that hosts share."""

    key: tuple[str, str]
    seconds: Seconds
    """Duration of its update."""
    hosted: Bytes
    """Bytes of the whole matrix in the dtype that travels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostExchangeRate:
    """What a gather or a scatter within the hosts takes."""

    bytes_per_second: float = 300e9
    """Bandwidth into or out of one host."""
    latency_seconds: float = 20e-6
    """Latency of each collective."""

    def seconds(self, hosted: Bytes) -> float:
        """Duration of a collective whose busiest host holds `hosted`; its own part is counted, in place of packing."""
        return hosted.value / self.bytes_per_second + self.latency_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPlan:
    """Micro-groups in the order of the pipeline, with their predicted times."""

    groups: tuple[MicroGroup, ...]
    times: PipelineTimes

    @property
    def calls(self) -> int:
        """Collectives: a gather and a scatter of each group."""
        return 2 * len(self.groups)


def plan_groups(items: Sequence[HostItem], hosts: int, *, c_max: Bytes, rate: HostExchangeRate) -> GroupPlan:
    """The fastest candidate of every budget up to `c_max`; of equally fast ones that with fewer collectives.

    An item above `c_max` gets a slot of its own: the smallest budget is that of the largest item. Candidates of a
    smaller ceiling are candidates of a larger one, so the time never rises with `c_max`.
    """
    if not items:
        return GroupPlan(groups=(), times=run_pipeline(()))
    plans = [
        GroupPlan(groups=groups, times=run_pipeline(group_times(items, groups, rate)))
        for budget in budgets(items, c_max)
        for groups in (grown(items, hosts, budget), slotted(items, hosts, budget))
    ]
    return min(plans, key=lambda plan: (plan.times.total_seconds, plan.calls))


def budgets(items: Sequence[HostItem], c_max: Bytes) -> Iterator[Bytes]:
    """Largest item times 2^(j/2): the largest itself, then as far as `c_max`; none beyond the bytes of all items."""
    largest = max(item.hosted for item in items)
    total = sum(item.hosted.value for item in items)
    power = 0
    while power == 0 or (
        largest.value * 2 ** (power / 2) <= c_max.value and 2 ** ((power - 1) / 2) * largest.value < total
    ):
        yield largest * 2 ** (power / 2)
        power += 1


def group_times(
    items: Sequence[HostItem], groups: Sequence[MicroGroup], rate: HostExchangeRate
) -> tuple[GroupTimes, ...]:
    """Seconds of each group."""
    times = []
    for group in groups:
        exchange = rate.seconds(Bytes(max(sum(items[at].hosted.value for at in host) for host in group)))
        compute = tuple(sum(items[at].seconds.value for at in host) for host in group)
        times.append(GroupTimes(gather_seconds=exchange, compute_seconds=compute, scatter_seconds=exchange))
    return tuple(times)


def grown(items: Sequence[HostItem], hosts: int, budget: Bytes) -> tuple[MicroGroup, ...]:
    """Groups grown as the paper does: by falling cost to the least loaded host, closed before a host exceeds `budget`.

    Raises:
        ConfigError: One item exceeds `budget`.
    """
    groups: list[list[list[int]]] = []
    loads, held = [0.0] * hosts, [budget.value] * hosts
    for at in falling(_work(items)):
        item = items[at]
        if item.hosted > budget:
            raise ConfigError(
                f"{' '.join(item.key).strip()} has {format_bytes(item.hosted.value)} on its host, more than the budget "
                f"of {format_bytes(budget.value)}; raise c_max_bytes, or give it a slot of its own (oversize)"
            )
        host = min(range(hosts), key=lambda each: (loads[each], each))
        if not groups or held[host] + item.hosted.value > budget.value:
            groups.append([[] for _ in range(hosts)])
            loads, held, host = [0.0] * hosts, [0.0] * hosts, 0
        groups[-1][host].append(at)
        loads[host] += item.seconds.value
        held[host] += item.hosted.value
    return tuple(tuple(tuple(host) for host in group) for group in groups)


def slotted(items: Sequence[HostItem], hosts: int, budget: Bytes) -> tuple[MicroGroup, ...]:
    """All items dealt to hosts by cost, each host's list then cut into as many slots of equal cost as bytes demand.

    Each item of `items` fits into `budget`.
    """
    of_host: list[list[int]] = [[] for _ in range(hosts)]
    owners = largest_first(_work(items), hosts)
    for at in falling(_work(items)):
        of_host[owners[at]].append(at)
    most = max(sum(items[at].hosted.value for at in host) for host in of_host)
    count = max(1, -int(-most // budget.value))
    while True:
        slots = [_slots(items, host, count, budget) for host in of_host]
        if all(slots):
            return tuple(tuple(tuple(host[at]) for host in slots if host) for at in range(count))
        count += 1


def _slots(items: Sequence[HostItem], host: Sequence[int], count: int, budget: Bytes) -> list[list[int]] | None:
    """Items of one host in `count` slots, each to the least loaded that has room; None: they do not fit."""
    work = [WorkItem(key=items[at].key, cost=items[at].seconds, owner_bytes=items[at].hosted) for at in host]
    try:
        places = largest_first(work, count, memory=budget)
    except ConfigError:
        return None
    return [[at for at, place in zip(host, places, strict=True) if place == slot] for slot in range(count)]


def _work(items: Sequence[HostItem]) -> list[WorkItem]:
    return [WorkItem(key=item.key, cost=item.seconds, owner_bytes=item.hosted) for item in items]
