"""Selection of servers for a gang: fewest blocks, then fewest groups, then least capacity left over. Pure.

Groups are contiguous in node-rank order, and so are the servers of a block, so a ring over all ranks crosses between
groups as rarely as it can. Numbers of blocks and groups are exact, what is left over is a best fit. The same inputs
give the same answer: ties go by name.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby

from gangline.launch.kubernetes.placement.gang_request import GangRequest
from gangline.launch.kubernetes.placement.resources import as_text
from gangline.launch.kubernetes.placement.servers import ServerFacts
from gangline.spec.gang.podset import PlacedServer, Placement


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCapacity:
    """Number of pods of one gang that fit on a server."""

    server: ServerFacts
    pods: int
    """Now."""
    pods_empty: int
    """If no gang and no Job ran there."""
    refuses: str = ""
    """Why it accepts none, whatever is free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPlacement:
    """Why a gang finds no servers now."""

    sentence: str
    fits: int
    """Number of pods that would fit now."""
    never: bool = False
    """They would not fit on empty servers either."""


ServerSelector = Callable[[Sequence[ServerCapacity], GangRequest], Placement | NoPlacement]


@dataclass(frozen=True, slots=True)
class _Group:
    block: str
    name: str
    capacities: tuple[ServerCapacity, ...]
    pods: int
    """Whole tiles only."""


def select_servers(capacities: Sequence[ServerCapacity], request: GangRequest) -> Placement | NoPlacement:
    """Servers for `request` in node-rank order, or why there are none."""
    if request.servers:
        return _as_asked(capacities, request)
    chosen = _fewest(_groups(capacities, request.tile), request.num_pods)
    return _placement(_fill(chosen, request), request) if chosen else explain_no_placement(capacities, request)


def select_replacement(capacities: Iterable[ServerCapacity], lost: PlacedServer) -> PlacedServer | None:
    """Server for the pod of `lost`: the same one, else of its group, its block, or any; None: none has room."""

    def distance(capacity: ServerCapacity) -> tuple[bool, bool, bool, tuple[object, ...]]:
        each = capacity.server
        return each.name != lost.name, each.group != lost.group, each.block != lost.block, _natural_sort_key(each.name)

    found = min((capacity for capacity in capacities if capacity.pods > 0), key=distance, default=None)
    return _server(found) if found else None


def explain_no_placement(capacities: Sequence[ServerCapacity], request: GangRequest) -> NoPlacement:
    """Why there is no placement, with the number of pods that fit."""
    fits = sum(group.pods for group in _groups(capacities, request.tile))
    empty = sum(capacity.pods_empty // request.tile * request.tile for capacity in capacities)
    never = sum(capacity.pods_empty for capacity in capacities) < request.num_pods
    asks = f"{request.num_pods} pods of {_need_text(request)}"
    of_pool = f" of pool {request.pool}" if request.pool else ""
    if never:
        sentence = f"{asks} never fit: {_count(empty, 'pod')} would fit if all servers{of_pool} were empty"
        return NoPlacement(sentence=sentence, fits=fits, never=True)
    there = f"{_count(len(capacities), 'server')}{of_pool}"
    return NoPlacement(sentence=f"{asks} need room: {fits} fit now on {there}{_refusing(capacities)}", fits=fits)


def _need_text(request: GangRequest) -> str:
    """`8 nvidia.com/gpu, 64 cpu, 512 GB memory`: devices first."""
    order = sorted((name for name in request.need if name != "pods"), key=lambda name: ("/" not in name, name))
    return ", ".join(as_text(name, request.need[name]) for name in order if request.need[name]) or "any size"


@lru_cache(maxsize=65_536)
def _natural_sort_key(name: str) -> tuple[object, ...]:
    """Sorts `a-2` before `a-10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name))


def _as_asked(capacities: Sequence[ServerCapacity], request: GangRequest) -> Placement | NoPlacement:
    by_name = {capacity.server.name: capacity for capacity in capacities}
    for name in dict.fromkeys(request.servers):
        number, capacity = request.servers.count(name), by_name.get(name)
        if capacity is None:
            return NoPlacement(sentence=f"its plan names server {name}, which does not exist", fits=0)
        if capacity.pods < number:
            reason = capacity.refuses or f"has room for {capacity.pods} of {number} pods of {_need_text(request)}"
            return NoPlacement(sentence=f"its plan names server {name}, which {reason}", fits=0)
    return _placement([by_name[name] for name in request.servers], request)


def _groups(capacities: Iterable[ServerCapacity], tile: int) -> list[_Group]:
    def place(capacity: ServerCapacity) -> tuple[tuple[object, ...], tuple[object, ...]]:
        return _natural_sort_key(capacity.server.block), _natural_sort_key(capacity.server.group)

    groups = []
    for _, members in groupby(
        sorted(capacities, key=lambda capacity: (*place(capacity), _natural_sort_key(capacity.server.name))), key=place
    ):
        here = tuple(members)
        pods = sum(capacity.pods for capacity in here) // tile * tile
        groups.append(_Group(here[0].server.block, here[0].server.group, here, pods))
    return groups


def _fewest(groups: Sequence[_Group], num_pods: int) -> list[_Group]:
    """Groups that hold `num_pods`, in order; empty: there are none."""
    blocks = {
        name: sorted(members, key=lambda group: -group.pods)
        for name, members in groupby((group for group in groups if group.pods), key=lambda group: group.block)
    }
    shares = _shares(blocks, num_pods)
    taken = {name: members[: shares.get(name, 0)] for name, members in blocks.items()}
    chosen = _tightened(blocks, taken, num_pods)
    return [group for group in groups if group in chosen]


def _shares(blocks: Mapping[str, Sequence[_Group]], num_pods: int) -> dict[str, int]:
    """Groups to take of each block, its largest first: fewest blocks, then fewest groups in all.

    `most[b][r]` is the most pods that r groups in b blocks hold; a block gives its j largest groups or none.
    """
    sums = {name: list(accumulate((group.pods for group in members), initial=0)) for name, members in blocks.items()}
    largest = list(accumulate(sorted((each[-1] for each in sums.values()), reverse=True)))
    num_blocks = next((i + 1 for i, pods in enumerate(largest) if pods >= num_pods), 0)
    most: list[dict[int, tuple[int, tuple[tuple[str, int], ...]]]] = [{} for _ in range(num_blocks + 1)]
    most[0][0] = (0, ())
    for name, pods_of in sums.items():
        for b in range(num_blocks, 0, -1):
            for r, (pods, path) in most[b - 1].items():
                for j in range(1, len(pods_of)):
                    if pods + pods_of[j] > most[b].get(r + j, (-1, ()))[0]:
                        most[b][r + j] = (pods + pods_of[j], (*path, (name, j)))
                    if pods + pods_of[j] >= num_pods:
                        break
    enough = [r for r, (pods, _) in most[num_blocks].items() if pods >= num_pods] if num_blocks else []
    return dict(most[num_blocks][min(enough)][1]) if enough else {}


def _tightened(
    blocks: Mapping[str, Sequence[_Group]], taken: Mapping[str, Sequence[_Group]], num_pods: int
) -> list[_Group]:
    """The same numbers of groups in the same blocks, each exchanged for a smaller one while all pods fit."""
    chosen = [group for members in taken.values() for group in members]
    while True:
        spare = sum(group.pods for group in chosen) - num_pods
        swaps = [
            (old.pods - new.pods, old, new)
            for old in chosen
            for new in blocks[old.block]
            if new not in chosen and 0 < old.pods - new.pods <= spare
        ]
        if not swaps:
            return chosen
        _, old, new = max(swaps, key=lambda swap: swap[0])
        chosen[chosen.index(old)] = new


def _fill(groups: Iterable[_Group], request: GangRequest) -> list[ServerCapacity]:
    """One entry per pod; of a group the servers with most room are taken, so that pods stay together."""
    capacities: list[ServerCapacity] = []
    for group in groups:
        left = min(group.pods, request.num_pods - len(capacities))
        here: list[ServerCapacity] = []
        for capacity in sorted(group.capacities, key=lambda each: (-each.pods, _natural_sort_key(each.server.name))):
            here += [capacity] * min(capacity.pods, left - len(here))
        capacities += sorted(here, key=lambda each: _natural_sort_key(each.server.name))
    return capacities


def _placement(capacities: Sequence[ServerCapacity], request: GangRequest) -> Placement:
    source_labels = {label: None for capacity in capacities for label in capacity.server.source_labels}
    return Placement(
        servers=tuple(_server(capacity) for capacity in capacities),
        devices_per_server=request.devices_per_pod,
        tile=request.tile,
        labels=tuple(source_labels),
    )


def _server(capacity: ServerCapacity) -> PlacedServer:
    return PlacedServer(name=capacity.server.name, group=capacity.server.group, block=capacity.server.block)


def _refusing(capacities: Sequence[ServerCapacity]) -> str:
    named = [f"{capacity.server.name} {capacity.refuses}" for capacity in capacities if capacity.refuses]
    more = f" and {len(named) - 3} more take none" if len(named) > 3 else ""
    return f"; {', '.join(named[:3])}{more}" if named else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
