"""Waiting reasons from a gang's Workload in Kueue: its conditions, admission checks, position, topologies without room.

Of a topology Kueue says how many pods fit, and which servers it left out. A reason that no ending pod removes is final:
a taint, a selector, a resource that no server has, a tile larger than any group.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import POOL
from gangline.launch.kubernetes.placement.resources import as_text, num_fitting, pod_needs, read_amounts
from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.kubernetes.waiting.snapshot import (
    Snapshot,
    WaitingReason,
    counted,
    holders,
    one_line,
    read_time,
    with_holders,
)

_SHORT = re.compile(r"insufficient unused quota (?:in cohort )?for (\S+) in flavor (\S+?), (\S+) more needed")
_NEVER = re.compile(r"insufficient quota for (\S+) in flavor (\S+?),.*> maximum capacity \((\S+?)\)")
_NOT_COVERED = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_OTHER_NAMESPACE = "namespace doesn't match ClusterQueue selector"
_NO_FLAVOR = re.compile(
    r"no flavor|flavor \S+ (?:doesn't|does not) match|untolerated taint .* in flavor", re.IGNORECASE
)
_NO_TOPOLOGY = re.compile(r'Flavor "([^"]+)" does not (?:support TopologyAwareScheduling|contain the requested level)')
_ONLY_TOPOLOGY = re.compile(r'Flavor "([^"]+)" supports only TopologyAwareScheduling')
_HELD = ("OnHold", "AdmissionGated")
_FINAL_SECONDS = 30.0
"""Delay of Kueue's cache behind the changes of an administrator."""


def impossible(seen: Snapshot) -> WaitingReason | None:
    """A queue that does not exist or can never satisfy the gang."""
    condition = _not_reserved(seen)
    if condition is None:
        return None
    reason, text = str(condition.get("reason") or ""), str(condition.get("message") or "")
    room = no_room(seen, text, queue=_queue(seen))
    if room is not None and room.final_after_seconds is not None:
        return room
    sentence = _wrong_queue(_queue(seen), reason, text)
    if not sentence and not _SHORT.search(text) and room is None:  # one flavor may give it yet
        sentence = _too_small(_queue(seen), reason, text)
    return (
        WaitingReason(kind="queue-never", sentence=sentence, raw=text, final_after_seconds=_FINAL_SECONDS)
        if sentence
        else None
    )


def _wrong_queue(queue: str, reason: str, text: str) -> str:
    """Why this queue accepts no such gang, whatever is free; empty: it does."""
    if match := _NOT_COVERED.search(text):
        return (
            f"queue {queue} has no quota for {match[1]} at all: set another queue in launch.queue, or have the resource"
            " added to its ClusterQueue"
        )
    if _OTHER_NAMESPACE in text:
        return (
            f"queue {queue} takes no gangs of this namespace: label the namespace as spec.namespaceSelector of its"
            " ClusterQueue wants"
        )
    if "doesn't exist" in text or reason == "Misconfigured":
        return f"no queue {queue}: {one_line(text)}; see launch.queue in site.toml"
    return ""


def _too_small(queue: str, reason: str, text: str) -> str:
    """Why no flavor of the queue can ever satisfy the gang; empty: one can."""
    if match := _NEVER.search(text):
        return f"queue {queue} can never satisfy it: more {match[1]} than the {match[3]} of flavor {match[2]}"
    if reason == "ExceedsMaxQuota":
        return f"queue {queue} can never satisfy it: {one_line(text)}"
    if match := _NO_TOPOLOGY.search(text):
        return (
            f"flavor {match[1]} of queue {queue} has no such topology level: set a queue whose flavors have the"
            ' Topology in launch.queue, or use launch.route = "gates"'
        )
    if match := _ONLY_TOPOLOGY.search(text):
        return (
            f"flavor {match[1]} of queue {queue} takes only gangs that request a topology level: set another queue in"
            " launch.queue"
        )
    if reason == "NoMatchingFlavor" or _NO_FLAVOR.search(text):
        return f"no flavor of queue {queue} fits: {one_line(text)}"
    return ""


def queued(seen: Snapshot) -> WaitingReason | None:
    """A gang that waits for its turn."""
    if seen.workload is None or true_condition(seen.workload, "Admitted"):
        return None
    return _deactivated(seen) or _held(seen) or _put_back(seen) or _checked(seen.workload) or _not_yet(seen)


def _deactivated(seen: Snapshot) -> WaitingReason | None:
    """Somebody, or Kueue itself after too many tries, took this gang alone out of its queue."""
    workload = seen.workload or {}
    if (workload.get("spec") or {}).get("active") is not False:
        return None
    evicted = _condition(workload, "Evicted") or {}
    text = str(evicted.get("message") or (_not_reserved(seen) or {}).get("message") or "")
    name, namespace = (workload["metadata"].get(key, key.upper()) for key in ("name", "namespace"))
    again = f"""kubectl -n {namespace} patch workload {name} --type merge -p '{{"spec":{{"active":true}}}}'"""
    sentence = f"Kueue keeps this gang alone back, not its queue: {one_line(text)}; {again} lets it wait again"
    return WaitingReason(kind="deactivated", sentence=sentence, raw=text)


def _held(seen: Snapshot) -> WaitingReason | None:
    """The workload is on hold, or its queue is stopped or inactive."""
    condition = _not_reserved(seen) or {}
    text, queue = str(condition.get("message") or ""), _queue(seen)
    if "is inactive" in text or condition.get("reason") == "Suspended":
        return _inactive(seen, text)
    if condition.get("reason") not in _HELD and "is stopped" not in text:
        return None
    sentence = f"queue {queue} is stopped by its administrator"
    return WaitingReason(kind="queue-stopped", sentence=f"{sentence}: {one_line(text)}" if text else sentence, raw=text)


def _inactive(seen: Snapshot, text: str) -> WaitingReason:
    """Why the queue is inactive, from the condition of the ClusterQueue if this account may read it."""
    queue, active = _queue(seen), _condition(seen.cluster_queue, "Active")
    if text.startswith("LocalQueue") or (active and active.get("reason") == "Stopped"):
        return WaitingReason(
            kind="queue-stopped", sentence=f"queue {queue} is stopped by its administrator: {one_line(text)}", raw=text
        )
    if active and active.get("status") == "False":
        sentence = f"queue {queue} admits nothing until it is repaired: {one_line(active.get('message'))}"
        return WaitingReason(kind="queue-broken", sentence=sentence, raw=f"{text}; {active.get('message')}")
    sentence = f"queue {queue} admits nothing: {one_line(text)}, which is stopped or lacks a flavor, check or topology"
    return WaitingReason(
        kind="queue-inactive", sentence=f"{sentence}; kubectl describe clusterqueue says which", raw=text
    )


def _put_back(seen: Snapshot) -> WaitingReason | None:
    evicted = true_condition(seen.workload or {}, "Evicted")
    if evicted is None:
        return None
    again = ((seen.workload or {}).get("status") or {}).get("requeueState") or {}
    times, at = again.get("count"), read_time(again.get("requeueAt"))
    sentence = f"requeued {f'{times} times' if times and times > 1 else 'once'} ({evicted.get('reason', 'no reason')})"
    sentence += f", next try at {at:%H:%M:%S} UTC" if at else f": {one_line(evicted.get('message'))}"
    until = at.isoformat(timespec="seconds") if at else ""
    return WaitingReason(kind="put-back", sentence=sentence, until=until, raw=str(evicted.get("message") or ""))


def _checked(workload: Object) -> WaitingReason | None:
    for check in (workload.get("status") or {}).get("admissionChecks") or ():
        if check.get("state") != "Ready":
            text = str(check.get("message") or check.get("state") or "")
            sentence = f"admission check {check.get('name')}: {one_line(text)}"
            return WaitingReason(kind="check", sentence=sentence, raw=text)
    return None


def _not_yet(seen: Snapshot) -> WaitingReason:
    condition = _not_reserved(seen) or {}
    reason, text = condition.get("reason"), str(condition.get("message") or "")
    ahead = _ahead(seen)
    if match := _SHORT.search(text):
        held = holders(seen, match[1])
        parts = [f"needs {match[3]} more {match[1]} in queue {_queue(seen)}", held.sentence if held else "", ahead]
        sentence = "; ".join(filter(None, parts))
        return WaitingReason(
            kind="queue",
            sentence=sentence,
            raw=text,
            holder=held.first if held else "",
            until=held.until if held else "",
        )
    if (room := no_room(seen, text, queue=_queue(seen))) is not None:
        return room
    if reason in ("WaitingForPreemptedWorkloads", "WaitingForPodsReady"):
        return WaitingReason(
            kind="preempting", sentence=f"other workloads are being preempted: {one_line(text)}", raw=text
        )
    where = f"in queue {_queue(seen)}"
    return WaitingReason(kind="queue", sentence="; ".join(filter(None, [where, one_line(text), ahead])), raw=text)


def _ahead(seen: Snapshot) -> str:
    name = ((seen.workload or {}).get("metadata") or {}).get("name")
    names = [each["metadata"]["name"] for each in seen.pending]
    if name not in names:
        return ""
    place = names.index(name)
    return f"{place} before us, first {names[0]}" if place else "first in the queue"


def _not_reserved(seen: Snapshot) -> Object | None:
    found = _condition(seen.workload, "QuotaReserved")
    return found if found and found.get("status") == "False" else None


def _condition(thing: Object | None, kind: str) -> Object | None:
    for each in ((thing or {}).get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            found: Object = each
            return found
    return None


def _queue(seen: Snapshot) -> str:
    return str(((seen.workload or {}).get("spec") or {}).get("queueName", "?"))


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
_TOPOLOGY_FINAL_SECONDS = 600.0
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
    match = _VERDICT.search(text)
    if match is None:
        return None
    before = _ONLY.match(text)
    return TopologyVerdict(
        topology=match["topology"],
        fits=int(match["fits"] or 0),
        wanted=int(match["of"] or match["none_of"]),
        in_tiles=match["unit"] == "slice",
        servers=None if match["servers"] is None else int(match["servers"]),
        exclusions=tuple(map(_exclusion, re.finditer(_EXCLUSION, match["excluded"] or ""))),
        is_alone=(before.end() if before else 0) == match.start() and match.end() == len(text.rstrip()),
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
        return WaitingReason(
            kind="queue-never", sentence=sentence, raw=text, final_after_seconds=_TOPOLOGY_FINAL_SECONDS
        )
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
