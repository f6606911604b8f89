"""Snapshot of everything that may explain why a gang waits, and the reason found in it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import CONTAINER
from gangline.launch.kubernetes.state.pods import is_ready, phase

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
