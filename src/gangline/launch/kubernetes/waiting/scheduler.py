"""Waiting reasons of scheduling: pods that fit on no server, and servers that do not respond.

Numbers are read from the scheduler's message; unknown messages are passed on.
"""

import re
from dataclasses import dataclass
from datetime import timedelta

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.placement.resources import as_text, pod_needs
from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.kubernetes.waiting.snapshot import (
    Snapshot,
    WaitingReason,
    counted,
    one_line,
    read_time,
    with_holders,
)

_AVAILABLE = re.compile(
    r"(?:In hyperNode (?P<hypernode>\S+): )?\d+/(?P<servers>\d+) nodes are (?:un)?available: (?P<reasons>.*)", re.DOTALL
)
"""Message of the scheduler of Kubernetes, and of Volcano, which puts words before it."""
_FOUND_BY_KAI = re.compile(r"Resources were found for (\d+) pods while")
_RESOURCES_OF_KAI = {"CPU cores": "cpu", "GPUs": "nvidia.com/gpu"}
_AS_KAI_SAYS = re.compile(r"no nodes with enough resources were found: (?P<reasons>.*)", re.DOTALL)
"""Sentences in place of clauses, and no number of servers."""
_CLAUSE = re.compile(r"(\d+) (.+)", re.DOTALL)
_NODES = r"node\(s\) "
_KNOWN = tuple(
    (re.compile(pattern), one, many)
    for pattern, one, many in (
        (r"Insufficient (\S+)", "lacks {0}", "lack {0}"),
        (_NODES + "didn't have enough resources: (.+)", "lacks {0}", "lack {0}"),
        (_NODES + "were unschedulable", "is cordoned", "are cordoned"),
        ("node is unschedulable", "is cordoned", "are cordoned"),
        (_NODES + r"had (?:untolerated )?taint(?:\(s\))?(?: ?\{([^:}]*):.*)?", "is tainted {0}", "are tainted {0}"),
        (
            _NODES + "didn't match Pod's node affinity/selector",
            "does not match the node selector",
            "do not match the node selector",
        ),
        (_NODES + "didn't match pod affinity rules", "violates the pod affinity", "violate the pod affinity"),
        (
            _NODES + "didn't match pod anti-affinity rules",
            "violates the pod anti-affinity",
            "violate the pod anti-affinity",
        ),
        (
            _NODES + "didn't match pod topology spread constraints.*",
            "violates the topology spread",
            "violate the topology spread",
        ),
        (_NODES + "didn't have free ports.*", "has its port in use", "have its port in use"),
        (_NODES + "had volume node affinity conflict", "cannot reach its volume", "cannot reach its volume"),
        (_NODES + "exceed max volume count", "is at its volume limit", "are at their volume limit"),
        ("Too many pods", "is at its pod limit", "are at their pod limit"),
        (_NODES + "pod number exceeded", "is at its pod limit", "are at their pod limit"),
    )
)


def unschedulable(seen: Snapshot) -> WaitingReason | None:
    """Pods that fit on no server; the sentence describes the first of them that the scheduler gives a verdict on."""
    refused = refusals(seen)
    if not refused:
        return None
    text = verdict_text(seen) or refused[0][1]
    verdict = read_verdict(text)
    if verdict is None:
        return WaitingReason(
            kind="unschedulable", sentence=f"no server for {_pods(len(refused))}: {one_line(text)}", raw=text
        )
    needs = _needs(refused[0][0], verdict.lacking)
    sentence = f"none of {verdict.servers} takes {_pods(len(refused))}{needs}: {', '.join(verdict.reasons)}"
    sentence += f"; there is room for {_pods(fitting)} of it" if (fitting := _num_fitting(seen)) else ""
    reason = WaitingReason(kind="unschedulable", sentence=sentence, raw=text)
    return with_holders(reason, seen, verdict.lacking, on_servers=True)


def refusals(seen: Snapshot) -> list[tuple[Object, str]]:
    """Pods that a scheduler has no server for, and its words."""
    return [(pod, words) for pod in seen.pods if (words := _not_scheduled(pod, "Unschedulable")) is not None]


def verdict_text(seen: Snapshot) -> str:
    """The first words, of pods or of their PodGroup, that say how many servers lack what; empty: none do."""
    texts = (*(words for _, words in refusals(seen)), seen.gang_refusal)
    return next((text for text in texts if read_verdict(text)), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a scheduler says of the servers that do not take a pod."""

    servers: str
    """How many, as `4 servers`, and of which HyperNode; of KAI only `the servers`."""
    reasons: list[str]
    """Reasons with their counts."""
    lacking: list[str]
    """Resources."""


def read_verdict(text: str) -> Verdict | None:
    """Verdict in the scheduler's message; None: unknown message."""
    if of_kai := _AS_KAI_SAYS.search(text):
        clauses = [clause.strip(" .\n") for clause in re.split(r"\. ?\n", of_kai["reasons"])]
        return _verdict("the servers", [clause for clause in clauses if clause])
    matched = _AVAILABLE.search(text)
    if matched is None:
        return None
    words = matched["reasons"].partition(" preemption: ")[0].partition(" no new claims to deallocate")[0]
    words = words.partition(". not found")[0].strip().rstrip(".,")
    servers = counted(int(matched["servers"]), "server", "servers")
    hypernode = matched["hypernode"]
    return _verdict(f"{servers} of HyperNode {hypernode}" if hypernode else servers, words.split(", "))


def _verdict(servers: str, clauses: list[str]) -> Verdict:
    read = [_read_clause(clause) for clause in clauses]
    return Verdict(
        servers=servers,
        reasons=[reason for reason, _ in read],
        lacking=[resource for _, resource in read if resource],
    )


def _read_clause(clause: str) -> tuple[str, str | None]:
    counted_clause = _CLAUSE.fullmatch(clause)
    if counted_clause is None:
        return one_line(clause), None
    number, words = int(counted_clause[1]), counted_clause[2]
    for pattern, one, many in _KNOWN:
        if matched := pattern.fullmatch(words):
            detail = next((group for group in matched.groups() if group), "")
            detail = _RESOURCES_OF_KAI.get(detail, detail)
            text = (one if number == 1 else many).format(detail).rstrip()
            return f"{number} {text}", detail if one.startswith("lacks") else None
    return f"{number} {one_line(words)}", None


def _not_scheduled(pod: Object, reason: str) -> str | None:
    """Words of a pod that has no server for this reason; None: it has one, or another reason."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False" and each.get("reason") == reason:
            return str(each.get("message") or "")
    return None


def _num_fitting(seen: Snapshot) -> int:
    """Pods that Volcano or KAI would start if the others fitted, too."""
    by_kai = next((int(match[1]) for _, words in refusals(seen) if (match := _FOUND_BY_KAI.search(words))), 0)
    return by_kai or sum(_not_scheduled(pod, "Schedulable") is not None for pod in seen.pods)


def _pods(number: int) -> str:
    return "a pod" if number == 1 else f"{number} pods"


def _needs(pod: Object, lacking: list[str]) -> str:
    needs = pod_needs(pod.get("spec") or {})
    parts = [as_text(name, needs[name]) for name in lacking if needs.get(name)]
    return f" of {' and '.join(parts)}" if parts else ""


_REPLACED_AFTER = timedelta(seconds=60)
"""How long pods tolerate a server that is not ready."""


_PRESSURES = {"MemoryPressure": "memory", "DiskPressure": "disk", "PIDPressure": "processes"}


def silent(seen: Snapshot) -> WaitingReason | None:
    """A server of the gang that does not respond or is under pressure."""
    mine = {(pod.get("spec") or {}).get("nodeName") for pod in seen.pods}
    for node in seen.nodes:
        name = node["metadata"]["name"]
        if name not in mine:
            continue
        for each in (node.get("status") or {}).get("conditions") or ():
            if each.get("type") == "Ready" and each.get("status") != "True":
                return _not_ready(name, each)
        for kind, what in _PRESSURES.items():
            if pressed := true_condition(node, kind):
                sentence = f"server {name} is short of {what}, the pod may be evicted"
                return WaitingReason(kind="pressure", sentence=sentence, raw=str(pressed.get("message", "")))
    return None


def _not_ready(name: str, condition: dict[str, object]) -> WaitingReason:
    since = read_time(condition.get("lastTransitionTime"))
    says = "not responding" if condition.get("status") == "Unknown" else "not ready"
    sentence = f"server {name} is {says}"
    until = ""
    if since is not None:
        replaced = since + _REPLACED_AFTER
        until = replaced.isoformat(timespec="seconds")
        sentence += f" since {since:%H:%M:%S} UTC, its pod is replaced from {replaced:%H:%M:%S} on"
    return WaitingReason(kind="server", sentence=sentence, until=until, raw=str(condition.get("message", "")))
