"""Servers that the placer gave a gang, as annotations of its root: their names, and their groups in runs."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from gangline.launch.kubernetes.objects.labels import GROUPS, SERVERS
from gangline.spec.gang.podset import PlacedServer


def placed_annotations(servers: Sequence[PlacedServer]) -> dict[str, str | None]:
    """Annotations for `servers` in node-rank order; groups as `BLOCK/GROUP*NUMBER`, None where none is known."""
    runs = [(place, len(list(run))) for place, run in groupby((server.block, server.group) for server in servers)]
    is_known = any(group for (_, group), _ in runs)
    groups = ",".join(f"{block}/{group}*{number}" for (block, group), number in runs)
    return {SERVERS: ",".join(server.name for server in servers), GROUPS: groups if is_known else None}


def read_placed(annotations: Mapping[str, str]) -> tuple[PlacedServer, ...]:
    """Servers in node-rank order; empty: the placer gave none. Groups that do not match them are not known."""
    names = [name for name in annotations.get(SERVERS, "").split(",") if name]
    places = [place for run in annotations.get(GROUPS, "").split(",") if run for place in _places(run)]
    if len(places) != len(names):
        return tuple(PlacedServer(name=name) for name in names)
    return tuple(
        PlacedServer(name=name, block=block, group=group) for name, (block, group) in zip(names, places, strict=True)
    )


def _places(run: str) -> list[tuple[str, str]]:
    place, _, number = run.rpartition("*")
    block, _, group = place.partition("/")
    return [(block, group)] * int(number) if number.isdecimal() and len(number) < 6 else []
