"""Waiting reasons from what Kueue says of a topology without room: how many pods fit, and which servers it left out.

A reason that no ending pod removes is final: a taint, a selector, a resource that no server has, a tile larger than any
group.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import POOL
from gangline.launch.kubernetes.placement.resources import as_text, num_fitting, pod_needs, read_amounts
from gangline.launch.kubernetes.waiting.holders import with_holders
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, counted

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_EXCLUSION = rf"(?:(taint|resource) ({_QUOTED})|(\w+)): (\d+)"
_VERDICT = re.compile(
    r'topology "(?P<topology>[^"]+)" '
    r"(?:doesn't allow to fit any of (?P<none_of>\d+)|allows to fit only (?P<fits>\d+) out of (?P<of>\d+))"
    r" (?P<unit>pod|slice)\(s\)"
    rf"(?:\. Total nodes: (?P<servers>\d+); excluded: (?P<excluded>{_EXCLUSION}(?:, {_EXCLUSION})*))?"
)
_ONLY = re.compile(r"couldn't assign flavors to pod set [^:]+: ")
_PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeleted", "DeletionCandidate")
"""Beginnings of taints that a server has while it comes, goes or is ill."""
_FINAL_SECONDS = 600.0
"""Longer than a server needs that joins, to get its taints, labels and devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Exclusion:
    """Servers that Kueue left out for one reason."""

    kind: str
    """`taint`, `resource`, `nodeSelector`, `affinity`, `topologyDomain` or another word of Kueue."""
    name: str
    servers: int

    @property
    def words(self) -> str:
        """How many, and why."""
        one, many = _WORDS.get(self.kind, (f"is left out ({self.kind})", f"are left out ({self.kind})"))
        return f"{self.servers} {one if self.servers == 1 else many}{f' {self.name}' if self.name else ''}"


_WORDS = {
    "taint": ("is tainted", "are tainted"),
    "resource": ("has too little free", "have too little free"),
    "nodeSelector": ("does not match the node selector", "do not match the node selector"),
    "affinity": ("does not match the node affinity", "do not match the node affinity"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TopologyVerdict:
    """Why a topology has no room for a gang."""

    topology: str
    fits: int
    """Pods or tiles that fit."""
    wanted: int
    in_tiles: bool
    servers: int | None
    """All that Kueue looked at; None: it left none of them out, and does not say how many there are."""
    exclusions: tuple[_Exclusion, ...]
    is_alone: bool
    """Kueue says nothing else: no other flavor may have room."""

    @property
    def room(self) -> int | None:
        """Servers with room for at least one pod; None: not known."""
        return None if self.servers is None else self.servers - sum(each.servers for each in self.exclusions)


def read_topology_verdict(text: str) -> TopologyVerdict | None:
    """The first verdict in a message of Kueue; None: there is none."""
    found = _VERDICT.search(text)
    if found is None:
        return None
    before = _ONLY.match(text)
    return TopologyVerdict(
        topology=found["topology"],
        fits=int(found["fits"] or 0),
        wanted=int(found["of"] or found["none_of"]),
        in_tiles=found["unit"] == "slice",
        servers=None if found["servers"] is None else int(found["servers"]),
        exclusions=tuple(map(_exclusion, re.finditer(_EXCLUSION, found["excluded"] or ""))),
        is_alone=(before.end() if before else 0) == found.start() and found.end() == len(text.rstrip()),
    )


def _exclusion(found: re.Match[str]) -> _Exclusion:
    return _Exclusion(kind=found[1] or found[3], name=(found[2] or "").strip('"'), servers=int(found[4]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """What a gang asks a topology for."""

    pods: int
    needs: Mapping[str, int]
    """Requests of one pod."""
    tile: int = 1
    """Consecutive pods that must share one domain of `level`."""
    level: str = ""
    """Node label; empty: its pods need not share one."""


def _wanted(seen: Snapshot) -> _Wanted:
    podsets = ((seen.workload or {}).get("spec") or {}).get("podSets") or [{}]
    podset: Object = podsets[0]
    request, pods = podset.get("topologyRequest") or {}, int(podset.get("count") or seen.num_nodes)
    needs = pod_needs((podset.get("template") or {}).get("spec") or {})
    if level := request.get("required"):
        return _Wanted(pods=pods, needs=needs, tile=pods, level=level)
    level, size = request.get("podSetSliceRequiredTopology"), int(request.get("podSetSliceSize") or 1)
    return _Wanted(pods=pods, needs=needs, tile=size, level=level) if level else _Wanted(pods=pods, needs=needs)


def no_room(seen: Snapshot, text: str, *, queue: str) -> WaitingReason | None:
    """The reason of a gang for which a topology has no room; None: `text` says nothing of one."""
    verdict = read_topology_verdict(text)
    if verdict is None:
        return None
    wanted = _wanted(seen)
    sentence = _sentence(verdict, wanted)
    if verdict.is_alone and (never := _never(verdict, wanted, seen.topology_nodes)):
        sentence = f"queue {queue} can never satisfy it: {sentence}; {never}"
        return WaitingReason(kind="queue-never", sentence=sentence, raw=text, final_after_seconds=_FINAL_SECONDS)
    kind = "scattered" if _is_scattered(verdict, wanted) else "unschedulable"
    lacking = [each.name for each in verdict.exclusions if each.kind == "resource"]
    return with_holders(WaitingReason(kind=kind, sentence=sentence, raw=text), seen, lacking, on_servers=True)


def _sentence(verdict: TopologyVerdict, wanted: _Wanted) -> str:
    causes = ", ".join(each.words for each in verdict.exclusions)
    servers = counted(verdict.servers or 0, "server", "servers")
    if verdict.room == 0:
        return f"none of {servers} of topology {verdict.topology} takes a pod: {causes}"
    if verdict.servers is None and not verdict.fits and not verdict.in_tiles:
        return f"topology {verdict.topology} has no server for it that is ready, not cordoned and has all its labels"
    unit = f"tiles of {wanted.tile} pods" if verdict.in_tiles else "pods"
    share = f" that must share one {wanted.level}" if wanted.level and not verdict.in_tiles else ""
    room = f"{verdict.fits} of {verdict.wanted} {unit}{share}"
    of_servers = f"; of {servers} {causes}" if causes else ""
    if _is_scattered(verdict, wanted):
        return f"free servers are scattered: {room} fit {verdict.topology}{of_servers}"
    return f"topology {verdict.topology} has room for {room}{of_servers}"


def _is_scattered(verdict: TopologyVerdict, wanted: _Wanted) -> bool:
    """Whether its pods would fit one by one, as each server that is not left out has room for one at least."""
    return bool(wanted.level) and verdict.room is not None and verdict.room >= wanted.pods


def _never(verdict: TopologyVerdict, wanted: _Wanted, nodes: list[Object] | None) -> str:
    """Why no pod that ends makes room, and what would; empty: one may."""
    if verdict.room == 0:
        remedies = [_remedy(each, wanted, nodes) for each in verdict.exclusions]
        return "; ".join(dict.fromkeys(remedies)) if all(remedies) else ""
    if not (wanted.level and nodes):
        return ""
    largest = _largest_group(nodes, wanted)
    if largest >= wanted.tile:
        return ""
    return f"{wanted.tile} pods must share one {wanted.level}, and the largest has room for {largest} when it is empty"


def _remedy(cause: _Exclusion, wanted: _Wanted, nodes: list[Object] | None) -> str:
    """What would let its pods in; empty: time may, or this is not known."""
    if cause.kind == "taint" and not cause.name.startswith(_PASSING_TAINTS):
        pool = cause.name.removeprefix(f"{POOL}=").partition(":")[0]
        ours = f'launch.pool = "{pool}", ' if cause.name.startswith(f"{POOL}=") else ""
        return f"{ours}pod.tolerate or a toleration of its flavor lets its pods in"
    if cause.kind in ("nodeSelector", "affinity"):
        return "its pods select labels that no server of the flavor has"
    if cause.kind != "resource" or nodes is None or len(nodes) < cause.servers or cause.name not in wanted.needs:
        return ""
    most = max(_allocatable(node).get(cause.name, 0) for node in nodes)
    need = wanted.needs[cause.name]
    return (
        ""
        if most >= need
        else f"a pod requests {as_text(cause.name, need)}, no server has more than {as_text(cause.name, most)}"
    )


def _largest_group(nodes: list[Object], wanted: _Wanted) -> int:
    """Pods that fit on the empty servers of the domain of its level that has most room."""
    room = Counter[str]()
    for node in nodes:
        domain = (node["metadata"].get("labels") or {}).get(wanted.level, "")
        room[domain] += num_fitting(_allocatable(node), wanted.needs)
    return max(room.values())


def _allocatable(node: Object) -> dict[str, int]:
    return read_amounts((node.get("status") or {}).get("allocatable"))
