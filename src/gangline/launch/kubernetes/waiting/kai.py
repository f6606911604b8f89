"""Waiting reasons of gangs of KAI: its queue, a Topology, servers, and pods that it moves out of the way.

KAI writes the cause into the condition of every pod, so its PodGroup is not read. Words are those of KAI 0.13.
"""

import re
from dataclasses import replace
from datetime import timedelta

from gangline.launch.kubernetes.objects.labels import SCHEDULERS
from gangline.launch.kubernetes.placement.resources import pod_needs
from gangline.launch.kubernetes.state.pods import phase
from gangline.launch.kubernetes.waiting import scheduler
from gangline.launch.kubernetes.waiting.snapshot import (
    Snapshot,
    WaitingReason,
    counted,
    event_time,
    read_time,
    with_holders,
)

_NO_QUEUE = re.compile(r"Queue '(?P<queue>.+)' does not exist")
_LIMIT = re.compile(
    r"(?P<queue>\S+) quota has reached the allowable limit of (?P<what>CPU cores|GPUs|memory)\. Limit is"
    r" (?P<most>\S+) \S+ currently (?P<used>\S+) \S+ allocated and workload requested (?P<asked>\S+) "
)
_QUOTA = re.compile(
    r"Workload requested (?P<asked>\S+) (?P<what>CPU cores|GPUs|GB memory), but (?P<queue>\S+) quota is"
    r" (?P<most>\S+) \S+ while (?P<used>\S+) \S+ are already allocated for non-preemptible pods"
)
_UNITS = {"CPU cores": "cpu", "memory": "GB memory"}
_GROUP = re.compile(r"node-group (\S+) can allocate only (\d+) of (\d+) required pods")
_TOPOLOGY = re.compile(r"topology (?P<name>\S+), requirement \S* *couldn't be satisfied")
_NO_TOPOLOGY = re.compile(r"Requested topology (?P<name>\S+) does not exist")
_FINAL_SECONDS = 30.0
"""The same patience as with a queue of Kueue."""
_AGAIN = timedelta(seconds=10)
"""KAI repeats, every second, that pods are to follow others onto a server."""
_LOOKED_AFTER = timedelta(seconds=10)
_STALE = "if that lasts 60 s, its default, KAI stops the other pods, too"


def impossible(seen: Snapshot) -> WaitingReason | None:
    """A gang that has not started, whose queue does not exist or can never satisfy it."""
    reason = _queue(seen)
    return reason if reason is not None and reason.final_after_seconds is not None else None


def waits(seen: Snapshot) -> WaitingReason | None:
    """A gang of KAI some of whose pods have no server, for any reason."""
    if not (waiting := _waiting(seen)):
        return None
    reason = _preempting(seen) or _queue(seen) or _topology(seen) or scheduler.unschedulable(seen)
    if reason is None and waiting == len(seen.pods) == seen.num_nodes and _are_old(seen):
        says = "KAI has not processed it yet, which takes seconds if its scheduler and pod grouper run"
        return WaitingReason(kind="queue", sentence=says)
    if reason is None or not any(phase(pod) == "Running" for pod in seen.pods):
        return reason
    return replace(reason, sentence=f"{reason.sentence}; {_STALE}")


def _waiting(seen: Snapshot) -> int:
    """Pods of KAI without a server."""
    specs = [pod.get("spec") or {} for pod in seen.pods]
    return sum(spec.get("schedulerName") == SCHEDULERS["kai"] and not spec.get("nodeName") for spec in specs)


def _are_old(seen: Snapshot) -> bool:
    """Whether KAI, which looks every second, had time to look at all pods."""
    made = [read_time(pod["metadata"].get("creationTimestamp")) or seen.now for pod in seen.pods]
    return seen.now - max(made) >= _LOOKED_AFTER


def _preempting(seen: Snapshot) -> WaitingReason | None:
    recent_events = seen.recent_events("Pipelined")
    if not recent_events or seen.now - event_time(recent_events[-1], seen.now) > _AGAIN:
        return None
    text = str(recent_events[-1].get("message") or "")
    sentence = "KAI stops pods of other gangs for it, and starts it once they have left"
    return WaitingReason(kind="preempting", sentence=sentence, raw=text)


def _queue(seen: Snapshot) -> WaitingReason | None:
    """Why its queue does not let it in; final where it never will."""
    text = _text(seen)
    if gone := _NO_QUEUE.search(text):
        return _no_queue(seen, gone["queue"], text)
    limit, quota = _LIMIT.search(text), _QUOTA.search(text)
    match = limit or quota
    if match is None:
        return None
    unit = _UNITS.get(match["what"], match["what"])
    asks = f"{counted(len(scheduler.refusals(seen)), 'pod requests', 'pods request')} {match['asked']} {unit}"
    if _exceeds(match["asked"], match["most"]):
        most = f"its {'limit' if limit else 'quota for gangs that KAI may not preempt'} is {match['most']} {unit}"
        sentence = f"queue {match['queue']} can never satisfy it: {asks}, {most}"
        sentence += "" if limit else '; one of launch.priority "normal" needs no quota'
        return WaitingReason(kind="queue-never", sentence=sentence, raw=text, final_after_seconds=_FINAL_SECONDS)
    whose = "" if limit else " of the quota for gangs that KAI may not preempt"
    used = f"{match['used']} of {match['most']} {unit}{whose} are used"
    return WaitingReason(kind="queue", sentence=f"queue {match['queue']} has no room: {used}, {asks}", raw=text)


def _no_queue(seen: Snapshot, queue: str, text: str) -> WaitingReason:
    """Final for a gang no pod of which was ever bound."""
    if any((pod.get("spec") or {}).get("nodeName") for pod in seen.pods):
        sentence = f"KAI has no queue {queue} any more: nothing starts from it until there is one of that name"
        return WaitingReason(kind="queue-stopped", sentence=sentence, raw=text)
    sentence = f"KAI has no queue {queue}, or one above it is missing; see launch.queue in site.toml"
    return WaitingReason(kind="queue-never", sentence=sentence, raw=text, final_after_seconds=_FINAL_SECONDS)


def _topology(seen: Snapshot) -> WaitingReason | None:
    """A gang that fits into no group, or not onto the servers of its Topology."""
    text = _text(seen)
    room = sorted(((int(number), name, wanted) for name, number, wanted in _GROUP.findall(text)), reverse=True)
    if room:
        most, name, wanted = room[0]
        places = f"{counted(len(room), 'group has', 'groups have')} less room, {name} for {most}"
        sentence = f"no group of servers takes {wanted} pods: {places}"
    elif gone := _NO_TOPOLOGY.search(text):
        sentence = f"KAI has no Topology {gone['name']} any more, by which the gang is to be placed"
    elif short := _TOPOLOGY.search(text):
        sentence = (
            f"no room on the servers that have all labels of Topology {short['name']}; KAI takes no others for it"
        )
    else:
        return None
    reason = WaitingReason(kind="unschedulable", sentence=sentence, raw=text)
    return with_holders(reason, seen, _devices(seen), on_servers=True)


def _devices(seen: Snapshot) -> list[str]:
    """Requests of its pods other than CPUs and memory, for which KAI does not report shortages."""
    needs = pod_needs(seen.pods[0].get("spec") or {}) if seen.pods else {}
    return sorted(name for name in needs if "/" in name)


def _text(seen: Snapshot) -> str:
    """The words of all pods; the first that is refused may lack those about the gang."""
    return "\n".join(dict.fromkeys(words for _, words in scheduler.refusals(seen)))


def _exceeds(asked: str, most: str) -> bool:
    try:
        return float(asked) > float(most)
    except ValueError:
        return False  # `Unlimited`
