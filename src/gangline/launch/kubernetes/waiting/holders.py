"""Holders of the resources for which a gang waits: gangs by name with their latest end, other pods by owner."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import CONTAINER, DEADLINE, END, rfc3339
from gangline.launch.kubernetes.objects.render_context import STARTING_SECONDS
from gangline.launch.kubernetes.placement.resources import add, as_text, pod_needs
from gangline.launch.kubernetes.state.pods import is_over, owner_name
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, read_time

_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class _Holders:
    sentence: str
    """The three largest holders."""
    first: str
    """Name of the largest holder."""
    until: str
    """Latest end of the largest holder; empty: unknown."""


def holders(seen: Snapshot, resource: str, *, on_servers: bool = False) -> _Holders | None:
    """Holders of `resource` among the visible pods; None: there are none.

    Args:
        seen: With the pods of others.
        resource: As pods request it.
        on_servers: Only what pods with a server hold; else also pods that wait for one, which a quota counts.
    """
    amounts: dict[str, dict[str, int]] = {}
    ends: dict[str, str] = {}
    for pod in seen.others:
        if is_over(pod) or (on_servers and not (pod.get("spec") or {}).get("nodeName")):
            continue
        owner = owner_name(pod)
        amounts[owner] = add(amounts.get(owner, {}), pod_needs(pod.get("spec") or {}))
        known = [end for end in (ends.get(owner, ""), _end(pod, seen.now)) if end]
        ends[owner] = min(known, key=lambda end: read_time(end) or datetime.max.replace(tzinfo=UTC), default="")
    held = sorted(
        ((needs.get(resource, 0), owner) for owner, needs in amounts.items()), key=lambda one: (-one[0], one[1])
    )
    held = [(amount, owner) for amount, owner in held if amount > 0]
    if not held:
        return None
    parts = [f"{owner} holds {as_text(resource, amount)}{_until(ends[owner])}" for amount, owner in held[:_SHOWN]]
    rest = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    return _Holders(sentence=", ".join(parts) + rest, first=held[0][1], until=ends[held[0][1]])


def with_holders(
    reason: WaitingReason, seen: Snapshot, resources: Iterable[str], *, on_servers: bool = False
) -> WaitingReason:
    """`reason` with the holders of the first of `resources` that has any; arguments are those of `holders`."""
    found = next((each for name in resources if (each := holders(seen, name, on_servers=on_servers))), None)
    if found is None:
        return reason
    return replace(reason, sentence=f"{reason.sentence}; {found.sentence}", holder=found.first, until=found.until)


def _end(pod: Object, now: datetime) -> str:
    """Latest end of a pod, from its start (or now) and its time limit.

    The annotation, which includes a week of waiting, is used only if the pod has no time limit.
    """
    marked = str((pod["metadata"].get("annotations") or {}).get(END, ""))
    seconds = _seconds(pod.get("spec") or {})
    if seconds is None:
        return marked
    started = read_time((pod.get("status") or {}).get("startTime"))
    return rfc3339((started or now) + timedelta(seconds=seconds))


def _seconds(spec: Object) -> float | None:
    """Time limit of the gang whose pods have this spec; None: no deadline."""
    parts = [
        each.get("value")
        for container in spec.get("containers") or ()
        for each in container.get("env") or ()
        if container.get("name") == CONTAINER and each.get("name") == DEADLINE
    ]
    try:
        own = float(str(parts[0]))
    except (IndexError, ValueError):
        return None
    return own + float(spec.get("terminationGracePeriodSeconds") or 0) + STARTING_SECONDS


def _until(stamp: str) -> str:
    time = read_time(stamp)
    return f" until {time:%Y-%m-%d %H:%M} UTC at the latest" if time else ""
