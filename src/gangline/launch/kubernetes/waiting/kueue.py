"""What Kueue says of a gang's Workload: its conditions, admission checks, and the place in its queue."""

import re

from gangline.launch.kubernetes.api.protocol import Object
from gangline.launch.kubernetes.pods import true_condition
from gangline.launch.kubernetes.waiting.holders import holders
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, Waiting, one_line, read_time

_SHORT = re.compile(r"insufficient unused quota (?:in cohort )?for (\S+) in flavor (\S+?), (\S+) more needed")
_NEVER = re.compile(r"insufficient quota for (\S+) in flavor (\S+?),.*> maximum capacity \((\S+?)\)")
_SCATTERED = re.compile(
    r'topology "([^"]+)" (?:allows to fit only (\d+) out of (\d+) pod|doesn\'t allow to fit any of (\d+) pod)'
)
_NO_FLAVOR = re.compile(r"no flavor|flavor \S+ (?:doesn't|does not) match", re.IGNORECASE)
_STOPPED = ("Suspended", "OnHold", "AdmissionGated")
_FINAL_SECONDS = 30.0
"""Kueue's cache may lag behind what an administrator just made."""


def impossible(seen: Snapshot) -> Waiting | None:
    """A queue that is not there, or can never give as much."""
    condition = _not_reserved(seen)
    if condition is None:
        return None
    reason, text = condition.get("reason"), str(condition.get("message") or "")
    queue = _queue(seen)
    if found := _NEVER.search(text):
        sentence = f"queue {queue} can never give it: more {found[1]} than the {found[3]} of flavor {found[2]}"
    elif reason == "ExceedsMaxQuota":
        sentence = f"queue {queue} can never give it: {one_line(text)}"
    elif reason == "NoMatchingFlavor" or _NO_FLAVOR.search(text):
        sentence = f"no flavor of queue {queue} fits: {one_line(text)}"
    elif "doesn't exist" in text or reason == "Misconfigured":
        sentence = f"no queue {queue}: {one_line(text)}; see launch.queue in site.toml"
    else:
        return None
    return Waiting(kind="queue-never", sentence=sentence, raw=text, final_after_seconds=_FINAL_SECONDS)


def queued(seen: Snapshot) -> Waiting | None:
    """Its turn comes."""
    if seen.workload is None or true_condition(seen.workload, "Admitted"):
        return None
    return _held(seen) or _put_back(seen) or _checked(seen.workload) or _not_yet(seen)


def _held(seen: Snapshot) -> Waiting | None:
    workload = seen.workload or {}
    condition = _not_reserved(seen) or {}
    text = str(condition.get("message") or "")
    stopped = (workload.get("spec") or {}).get("active") is False or condition.get("reason") in _STOPPED
    if not stopped and "is inactive" not in text and "is stopped" not in text:
        return None
    sentence = f"queue {_queue(seen)} is stopped by its administrator"
    return Waiting(kind="queue-stopped", sentence=f"{sentence}: {one_line(text)}" if text else sentence, raw=text)


def _put_back(seen: Snapshot) -> Waiting | None:
    evicted = true_condition(seen.workload or {}, "Evicted")
    if evicted is None:
        return None
    again = ((seen.workload or {}).get("status") or {}).get("requeueState") or {}
    times, at = again.get("count"), read_time(again.get("requeueAt"))
    sentence = f"put back {f'{times} times' if times and times > 1 else 'once'} ({evicted.get('reason', 'no reason')})"
    sentence += f", next try at {at:%H:%M:%S} UTC" if at else f": {one_line(evicted.get('message'))}"
    until = at.isoformat(timespec="seconds") if at else ""
    return Waiting(kind="put-back", sentence=sentence, until=until, raw=str(evicted.get("message") or ""))


def _checked(workload: Object) -> Waiting | None:
    for check in (workload.get("status") or {}).get("admissionChecks") or ():
        if check.get("state") != "Ready":
            text = str(check.get("message") or check.get("state") or "")
            sentence = f"admission check {check.get('name')} says: {one_line(text)}"
            return Waiting(kind="check", sentence=sentence, raw=text)
    return None


def _not_yet(seen: Snapshot) -> Waiting:
    condition = _not_reserved(seen) or {}
    reason, text = condition.get("reason"), str(condition.get("message") or "")
    ahead = _ahead(seen)
    if found := _SHORT.search(text):
        held = holders(seen, found[1])
        parts = [f"needs {found[3]} more {found[1]} in queue {_queue(seen)}", held.sentence if held else "", ahead]
        sentence = "; ".join(filter(None, parts))
        return Waiting(
            kind="queue",
            sentence=sentence,
            raw=text,
            holder=held.first if held else "",
            until=held.until if held else "",
        )
    if found := _SCATTERED.search(text):
        fits, wanted = (found[2] or "0"), (found[3] or found[4])
        return Waiting(
            kind="scattered", sentence=f"free servers are scattered: {fits} of {wanted} pods fit {found[1]}", raw=text
        )
    if reason in ("WaitingForPreemptedWorkloads", "WaitingForPodsReady"):
        return Waiting(kind="preempting", sentence=f"others make room: {one_line(text)}", raw=text)
    where = f"in queue {_queue(seen)}"
    return Waiting(kind="queue", sentence="; ".join(filter(None, [where, one_line(text), ahead])), raw=text)


def _ahead(seen: Snapshot) -> str:
    name = ((seen.workload or {}).get("metadata") or {}).get("name")
    names = [each["metadata"]["name"] for each in seen.pending]
    if name not in names:
        return ""
    place = names.index(name)
    return f"{place} before us, first {names[0]}" if place else "first in the queue"


def _not_reserved(seen: Snapshot) -> Object | None:
    for each in ((seen.workload or {}).get("status") or {}).get("conditions") or ():
        if each.get("type") == "QuotaReserved" and each.get("status") == "False":
            found: Object = each
            return found
    return None


def _queue(seen: Snapshot) -> str:
    return str(((seen.workload or {}).get("spec") or {}).get("queueName", "?"))
