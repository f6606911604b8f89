"""Waiting reasons from a gang's Workload in Kueue: its conditions, admission checks, and position in the queue."""

import re

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.kubernetes.waiting.holders import holders
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, one_line, read_time
from gangline.launch.kubernetes.waiting.topology import no_room

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
    if found := _NOT_COVERED.search(text):
        return (
            f"queue {queue} has no quota for {found[1]} at all: set another queue in launch.queue, or have the resource"
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
    if found := _NEVER.search(text):
        return f"queue {queue} can never satisfy it: more {found[1]} than the {found[3]} of flavor {found[2]}"
    if reason == "ExceedsMaxQuota":
        return f"queue {queue} can never satisfy it: {one_line(text)}"
    if found := _NO_TOPOLOGY.search(text):
        return (
            f"flavor {found[1]} of queue {queue} has no such topology level: set a queue whose flavors have the"
            ' Topology in launch.queue, or use launch.route = "gates"'
        )
    if found := _ONLY_TOPOLOGY.search(text):
        return (
            f"flavor {found[1]} of queue {queue} takes only gangs that request a topology level: set another queue in"
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
    if found := _SHORT.search(text):
        held = holders(seen, found[1])
        parts = [f"needs {found[3]} more {found[1]} in queue {_queue(seen)}", held.sentence if held else "", ahead]
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
