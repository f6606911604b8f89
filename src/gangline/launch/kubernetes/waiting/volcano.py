"""Waiting reasons from a gang's PodGroup in Volcano: its phase, its queue, and what its scheduler says of it.

Volcano lets a PodGroup in when its queue is open and has room, and then looks for servers. Before that its pods show
general words alone; the cause is in events about the PodGroup and in the queue. Words are those of Volcano 1.15.
"""

import re

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.placement.resources import as_text, read_amounts
from gangline.launch.kubernetes.waiting.scheduler import refusals, verdict_text
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, counted, one_line, with_holders

_NO_QUOTA = "queue resource quota insufficient"
_OVERUSED = "resource in cluster is overused"
"""Message of the plugin `overcommit`."""
_LACKING = re.compile(r"(?:insufficient|overused) ([^\s,]+)")
_GANG_WORDS = re.compile(r"\d+/\d+ tasks in gang unschedulable")
"""Message of the event that every gang gets which does not start; it repeats the condition."""
_NOT_LET_IN = ("", "Pending")
_FINAL_SECONDS = 30.0
"""The same patience as with a queue of Kueue."""


def impossible(seen: Snapshot) -> WaitingReason | None:
    """A gang that was not let in yet, whose queue does not exist or can never satisfy it."""
    if not _waits(seen) or _phase(seen) not in _NOT_LET_IN:
        return None
    sentence, raw = "", ""
    if seen.volcano_queue == {}:
        sentence = f"Volcano has no queue {_queue(seen)}; see launch.queue in site.toml"
    elif (raw := _why_not_let_in(seen)).startswith(_NO_QUOTA):
        sentence = _too_small(seen, _LACKING.findall(raw))
    if not sentence:
        return None
    return WaitingReason(kind="queue-never", sentence=sentence, raw=raw, final_after_seconds=_FINAL_SECONDS)


def waits(seen: Snapshot) -> WaitingReason | None:
    """A gang that Volcano has not let in, or has no place for and does not say why."""
    if "pod_group" in seen.denied:
        return _unread(seen)
    if not _waits(seen):
        return None
    return _closed(seen) or (_outside(seen) if _phase(seen) in _NOT_LET_IN else _without_words(seen))


def _waits(seen: Snapshot) -> bool:
    """Whether Volcano has a PodGroup of this gang, and a pod of it has no server yet."""
    return bool(seen.pod_group) and any(not (pod.get("spec") or {}).get("nodeName") for pod in seen.pods)


def _closed(seen: Snapshot) -> WaitingReason | None:
    """A queue that is gone or not open, from which Volcano starts no pod, a lost one neither."""
    queue = _queue(seen)
    if seen.volcano_queue is None:
        return None
    state = (seen.volcano_queue.get("status") or {}).get("state") or ""
    if not seen.volcano_queue:
        sentence = f"Volcano has no queue {queue} any more: nothing starts from it until there is one of that name"
    elif not state:
        sentence = f"queue {queue} is not open: no controller of Volcano has opened it yet"
    elif state != "Open":
        sentence = f"queue {queue} is {state.lower()}: Volcano starts nothing from it until its administrator opens it"
    else:
        return None
    kind = "queue-stopped" if state or not seen.volcano_queue else "queue-inactive"
    return WaitingReason(kind=kind, sentence=sentence, raw=seen.gang_refusal)


def _outside(seen: Snapshot) -> WaitingReason:
    """A gang that was not admitted: for its queue's quota, for all requests together, or for an unknown reason."""
    text, queue = _why_not_let_in(seen), _queue(seen)
    if text.startswith((_NO_QUOTA, _OVERUSED)):
        return _no_room(seen, text)
    if text:
        return WaitingReason(kind="queue", sentence=f"queue {queue} has not let it in: {one_line(text)}", raw=text)
    if not _phase(seen):
        sentence = "Volcano has not processed it yet, which takes seconds if its scheduler runs"
    else:
        sentence = f"queue {queue} has not let it in, and Volcano does not say why"
    if "volcano_queue" in seen.denied:
        sentence += f"; whether there is a queue {queue}, and open, this account may not read (gangline-reader)"
    return WaitingReason(kind="queue", sentence=sentence)


def _no_room(seen: Snapshot, text: str) -> WaitingReason:
    """The capability of its queue, which says what is used of it, explains the refusal; else what the whole cluster
    has."""
    lacking, is_quota = _LACKING.findall(text), text.startswith(_NO_QUOTA)
    who = f"queue {_queue(seen)} has no room" if is_quota else "Volcano's plugin overcommit lets no more in"
    used = _used(seen, lacking) if is_quota else []
    sentence = f"{who}: {', '.join([*used, _requested(seen, lacking)])}"
    return with_holders(
        WaitingReason(kind="queue", sentence=sentence, raw=text), seen, () if used else lacking, on_servers=True
    )


def _without_words(seen: Snapshot) -> WaitingReason | None:
    """A gang that was admitted and not placed, if neither its pods nor its PodGroup say why."""
    if not seen.gang_refusal or verdict_text(seen):
        return None
    number = sum(not (pod.get("spec") or {}).get("nodeName") for pod in seen.pods)
    sentence = f"Volcano has no place for {_pods(number)} and does not say why{_tiles(seen)}"
    return WaitingReason(kind="unschedulable", sentence=sentence, raw=seen.gang_refusal)


def _unread(seen: Snapshot) -> WaitingReason | None:
    """General words of pods alone."""
    refused = refusals(seen)
    if not refused or verdict_text(seen):
        return None
    sentence = f"Volcano does not start {_pods(len(refused))}; why is in the PodGroup, which this account may not read"
    return WaitingReason(kind="unschedulable", sentence=sentence, raw=refused[0][1])


def _why_not_let_in(seen: Snapshot) -> str:
    """The latest of Volcano's events about the PodGroup that names a cause; empty: none does."""
    name = str(((seen.pod_group or {}).get("metadata") or {}).get("name") or "")
    said = [
        str(event.get("message") or "")
        for event in seen.recent_events("Unschedulable", about=name)
        if event["involvedObject"].get("kind") == "PodGroup"
    ]
    return next((text for text in reversed(said) if not _GANG_WORDS.match(text)), "")


def _too_small(seen: Snapshot, lacking: list[str]) -> str:
    """How the gang exceeds what its queue may ever use; empty: it does not, as far as the queue says."""
    asked, most = _asked(seen), _amounts(((seen.volcano_queue or {}).get("spec") or {}).get("capability"))
    for name in lacking:
        if asked.get(name, 0) > most.get(name, asked.get(name, 0)):
            return (
                f"queue {_queue(seen)} can never satisfy it: {_requested(seen, [name])}, its capability is"
                f" {as_text(name, most[name])}"
            )
    return ""


def _used(seen: Snapshot, lacking: list[str]) -> list[str]:
    """How much its queue has and is used, of what it may use a stated amount of."""
    queue = seen.volcano_queue or {}
    most = _amounts((queue.get("spec") or {}).get("capability"))
    used = _amounts((queue.get("status") or {}).get("allocated"))
    return [
        f"{as_text(name, used.get(name, 0)).removesuffix(f' {name}')} of {as_text(name, most[name])} are used"
        for name in lacking
        if name in most
    ]


def _requested(seen: Snapshot, names: list[str]) -> str:
    asked = _asked(seen)
    parts = [as_text(name, asked[name]) for name in names if name in asked]
    return f"{_pods(seen.num_nodes)} request{'s' if seen.num_nodes == 1 else ''} {' and '.join(parts) or 'too much'}"


def _asked(seen: Snapshot) -> dict[str, int]:
    return _amounts(_spec(seen).get("minResources"))


def _amounts(found: Object | None) -> dict[str, int]:
    """Amounts by resource; none of words that are no amounts."""
    try:
        return read_amounts(found)
    except ConfigError:
        return {}


def _tiles(seen: Snapshot) -> str:
    """What its tiles require; empty: they may run anywhere."""
    spec = _spec(seen)
    policies = spec.get("subGroupPolicy") or ()
    if not policies and not spec.get("networkTopology"):
        return ""
    size = policies[0].get("subGroupSize") if policies else spec.get("minMember")
    tier = (policies[0] if policies else spec).get("networkTopology", {}).get("highestTierAllowed")
    return f"; {size} pods must fit into one HyperNode of tier {tier}"


def _phase(seen: Snapshot) -> str:
    return str(((seen.pod_group or {}).get("status") or {}).get("phase") or "")


def _queue(seen: Snapshot) -> str:
    return str(_spec(seen).get("queue") or "?")


def _spec(seen: Snapshot) -> Object:
    return (seen.pod_group or {}).get("spec") or {}


def _pods(number: int) -> str:
    return counted(number, "pod", "pods")
