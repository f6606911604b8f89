"""Servers of a cluster for a gang, by what its pods need; `fabric.placement.selection` chooses among them. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gangline.fabric.placement import selection
from gangline.fabric.placement.order import pipeline_order
from gangline.fabric.placement.selection import FreeGroup
from gangline.launch.kubernetes.placement.queued_gangs import GangRequest
from gangline.launch.kubernetes.placement.resources import as_text
from gangline.launch.kubernetes.placement.servers import ServerFacts
from gangline.spec.gang.podset import PlacedServer


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

    @property
    def place(self) -> PlacedServer:
        """Its position in the network."""
        return PlacedServer(name=self.server.name, group=self.server.group, block=self.server.block)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPlacement:
    """Why a gang finds no servers now."""

    sentence: str
    never: bool = False
    """They would not fit on empty servers either."""


ServerSelector = Callable[[Sequence[ServerCapacity], GangRequest], tuple[PlacedServer, ...] | NoPlacement]


def select_servers(
    capacities: Sequence[ServerCapacity], request: GangRequest
) -> tuple[PlacedServer, ...] | NoPlacement:
    """Servers for `request` in node-rank order, or why there are none.

    Args:
        capacities: Of all servers of the pool; those of a group in order of their positions.
        request: Of the gang.
    """
    servers = selection.select_servers(free_groups(capacities), request.num_pods, tile=request.tile)
    if not servers:
        return explain_no_placement(capacities, request)
    return servers if request.pipeline is None else pipeline_order(servers, request.pipeline, tile=request.tile)


def select_replacement(capacities: Iterable[ServerCapacity], lost: PlacedServer) -> PlacedServer | None:
    """Server for the pod of `lost`: the same one, else of its group, its block, or any; None: none has room."""
    return selection.select_replacement((capacity.place for capacity in capacities if capacity.pods > 0), lost)


def free_groups(capacities: Iterable[ServerCapacity]) -> list[FreeGroup]:
    """Groups of the servers with the free places of each, in the order of `capacities`."""
    groups: dict[tuple[str, str], dict[str, int]] = {}
    for capacity in capacities:
        server = capacity.server
        groups.setdefault((server.block, server.group), {})[server.name] = capacity.pods
    return [FreeGroup(block=block, name=name, servers=servers) for (block, name), servers in groups.items()]


def explain_no_placement(capacities: Sequence[ServerCapacity], request: GangRequest) -> NoPlacement:
    """Why there is no placement, with the number of pods that fit."""
    fits = _whole_tiles(((capacity, capacity.pods) for capacity in capacities), request.tile)
    empty = _whole_tiles(((capacity, capacity.pods_empty) for capacity in capacities), request.tile)
    never = empty < request.num_pods
    tiles = f", each {request.tile} consecutive ones in one group," if request.tile > 1 else ""
    asks = f"{request.num_pods} pods of {_need_text(request)}{tiles}"
    of_pool = f" of pool {request.pool}" if request.pool else ""
    if never:
        sentence = f"{asks} never fit: {_count(empty, 'pod')} would fit if all servers{of_pool} were empty"
        return NoPlacement(sentence=sentence, never=True)
    there = f"{_count(len(capacities), 'server')}{of_pool}"
    return NoPlacement(sentence=f"{asks} need room: {fits} fit now on {there}{_refusing(capacities)}")


def _whole_tiles(places: Iterable[tuple[ServerCapacity, int]], tile: int) -> int:
    """Pods of whole tiles on these places, each tile in one group."""
    groups: Counter[tuple[str, str]] = Counter()
    for capacity, number in places:
        groups[capacity.server.block, capacity.server.group] += number
    return sum(number // tile * tile for number in groups.values())


def _need_text(request: GangRequest) -> str:
    """`8 nvidia.com/gpu, 64 cpu, 512 GB memory`: devices first."""
    order = sorted((name for name in request.need if name != "pods"), key=lambda name: ("/" not in name, name))
    return ", ".join(as_text(name, request.need[name]) for name in order if request.need[name]) or "any size"


def _refusing(capacities: Sequence[ServerCapacity]) -> str:
    named = [f"{capacity.server.name} {capacity.refuses}" for capacity in capacities if capacity.refuses]
    more = f" and {len(named) - 3} more take none" if len(named) > 3 else ""
    return f"; {', '.join(named[:3])}{more}" if named else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
