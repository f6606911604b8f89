"""Snapshot of everything that may explain why a gang waits, the reason found in it, and who holds what it waits for.

Holders are gangs by name with their latest end, other pods by owner.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import CONTAINER, DEADLINE, END, rfc3339
from gangline.launch.kubernetes.objects.render_context import STARTING_SECONDS
from gangline.launch.kubernetes.placement.resources import add, as_text, pod_needs
from gangline.launch.kubernetes.state.pods import is_over, is_ready, owner_name, phase

_EVENTS_LAST = timedelta(minutes=15)
"""Older events are ignored: a controller that still fails repeats them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingReason:
    """Why a gang waits."""

    kind: str
    sentence: str
    holder: str = ""
    """Who holds the resources it waits for, as far as this account may see."""
    until: str = ""
    """When the holder ends at the latest, RFC 3339."""
    would_start_now: str = ""
    """The largest gang of such pods for which there is room."""
    raw: str = ""
    """The original message of the cluster."""
    final_after_seconds: float | None = None
    """Seconds after which the gang ends with exit code 10; None: the reason may resolve by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """State of the cluster around one gang; fields that this account may not read are empty."""

    now: datetime
    num_nodes: int
    root: Object | None = None
    pods: list[Object] = field(default_factory=list)
    """Pods of the gang."""
    events: list[Object] = field(default_factory=list)
    """Events about the root, what is made for it, its pods and its PodGroup of Volcano."""
    others: list[Object] = field(default_factory=list)
    """Pods of other gangs that hold resources."""
    nodes: list[Object] = field(default_factory=list)
    workload: Object | None = None
    """Kueue's, of this gang."""
    cluster_queue: Object | None = None
    """Kueue's, behind the gang's queue; read where the queue is said to be inactive."""
    topology_nodes: list[Object] | None = None
    """Nodes of the flavors on the Topology that has no room for the gang; None: not read, or this account may not."""
    pending: list[Object] = field(default_factory=list)
    """Kueue's pending workloads of the same queue, in order."""
    pod_group: Object | None = None
    """Volcano's, of this gang; empty: it is gone."""
    volcano_queue: Object | None = None
    """The queue that its PodGroup names; empty: there is none of that name."""
    denied: tuple[str, ...] = ()
    """Fields of these that this account may not read, as `pod_group`: they are asked for where a gang is Volcano's."""

    def recent_events(self, *reasons: str, about: str = "") -> list[Object]:
        """Recent events with these reasons, the latest last."""
        found = [
            event
            for event in self.events
            if event.get("reason") in reasons
            and about in ("", event.get("involvedObject", {}).get("name"))
            and self.now - event_time(event, self.now) <= _EVENTS_LAST
        ]
        return sorted(found, key=lambda event: event_time(event, self.now))

    def waiting_containers(self) -> Iterator[tuple[Object, Object]]:
        """(pod, waiting state) of each keeper or init container that waits."""
        for pod in self.pods:
            status = pod.get("status") or {}
            mine = [each for each in status.get("containerStatuses") or () if each.get("name") == CONTAINER]
            for each in (*(status.get("initContainerStatuses") or ()), *mine):
                waits = (each.get("state") or {}).get("waiting")
                if waits and waits.get("reason") != "PodInitializing":
                    yield pod, waits

    @property
    def gang_refusal(self) -> str:
        """What Volcano says of a PodGroup that it does not start; empty: it has started it since.

        The newest condition counts, as those of before stay; of two of one second, that it does not start.
        """
        found = ((self.pod_group or {}).get("status") or {}).get("conditions") or ()
        timed = [
            (read_time(each.get("lastTransitionTime")), each.get("type") == "Unschedulable", each) for each in found
        ]
        known = [(time, is_refusal, each) for time, is_refusal, each in timed if time is not None]
        if not known:
            return ""
        _, is_refusal, newest = max(known, key=lambda one: one[:2])
        return str(newest.get("message") or "") if is_refusal else ""

    @property
    def num_up(self) -> int:
        """Number of pods that are ready or have succeeded."""
        return sum(is_ready(pod) or phase(pod) == "Succeeded" for pod in self.pods)


def event_time(event: Object, default: datetime) -> datetime:
    """Time of the last occurrence of an Event; `default` if it has none."""
    series = event.get("series") or {}
    stamp = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return read_time(stamp) or default


def read_time(stamp: Any) -> datetime | None:
    """An RFC 3339 time; None if `stamp` is not one."""
    try:
        found = datetime.fromisoformat(stamp)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None


def one_line(text: Any, most: int = 300) -> str:
    """`text` in one line, without a final dot, shortened to `most` characters."""
    words = " ".join(str(text or "").split()).rstrip(".")
    return words if len(words) <= most else words[: most - 1] + "…"


def counted(number: int, one: str, many: str) -> str:
    """`number` with the word in singular or plural: `1 pod`, `3 pods`."""
    return f"{number} {one if number == 1 else many}"


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
    holding = next((each for name in resources if (each := holders(seen, name, on_servers=on_servers))), None)
    if holding is None:
        return reason
    return replace(reason, sentence=f"{reason.sentence}; {holding.sentence}", holder=holding.first, until=holding.until)


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
