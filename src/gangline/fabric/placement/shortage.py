"""Why a gang finds no servers now: what is free in each group, who holds the rest, whose end would make room. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangline.fabric.placement.selection import FreeGroup, fewest


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A gang that runs, and what its end would free."""

    name: str
    places: Mapping[str, int]
    """Places for pods of the waiting gang, by server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortage:
    """What a gang misses."""

    free: Mapping[tuple[str, str], int]
    """Free places by (block, group)."""
    largest: int
    """Pods of the largest gang of the same kind that would start now."""
    release: tuple[str, ...]
    """Holders whose end makes enough room; empty: not even the end of all does.

    With tiles of one pod the fewest holders, and of these the least places; with larger tiles none can be left out.
    """


def why_not(groups: Sequence[FreeGroup], num_pods: int, *, tile: int = 1, holders: Sequence[Holder] = ()) -> Shortage:
    """What keeps out a gang of `num_pods` pods of which `tile` consecutive ones share a group.

    Args:
        groups: All servers, also those without free places.
        num_pods: That do not fit.
        tile: As for `select_servers`.
        holders: Gangs that hold places.
    """
    group_of = {server: (group.block, group.name) for group in groups for server in group.servers}
    free = Counter({(group.block, group.name): group.places for group in groups})
    gains = {holder.name: _by_group(holder, group_of) for holder in holders}
    return Shortage(
        free=dict(free),
        largest=_pods(free, tile),
        release=_least_release(free, gains, num_pods, tile),
    )


def _by_group(holder: Holder, group_of: Mapping[str, tuple[str, str]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for server, places in holder.places.items():
        if server in group_of:
            found[group_of[server]] += places
    return found


def _pods(free: Counter[tuple[str, str]], tile: int) -> int:
    """Pods of whole tiles that fit."""
    return sum(places // tile * tile for places in free.values())


def _least_release(
    free: Counter[tuple[str, str]], gains: Mapping[str, Counter[tuple[str, str]]], num_pods: int, tile: int
) -> tuple[str, ...]:
    names = sorted(gains)
    if tile == 1:
        chosen = fewest([gains[name].total() for name in names], num_pods - free.total())
        return tuple(names[position] for position in chosen)
    now, released = free.copy(), list[str]()
    while _pods(now, tile) < num_pods:
        then = {name: _pods(now + gains[name], tile) for name in names if name not in released}
        if not then:
            return ()
        last = [name for name in then if then[name] >= num_pods]
        released.append(min(last, key=lambda name: gains[name].total()) if last else max(then, key=then.__getitem__))
        now += gains[released[-1]]
    for name in list(released):
        without = [each for each in released if each != name]
        if _pods(sum((gains[each] for each in without), free), tile) >= num_pods:
            released = without
    return tuple(sorted(released))
