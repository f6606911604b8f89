"""What was seen of a gang at one moment, and what may be said about it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import CONTAINER
from gangline.launch.kubernetes.state.pods import is_ready, phase

EVENTS_LAST = timedelta(minutes=15)
"""After so long an event is history: controllers that still fail have said so again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingReason:
    kind: str
    sentence: str
    holder: str = ""
    """Who has what it waits for, as far as the reader may see that."""
    until: str = ""
    """When that is over at the latest, RFC 3339."""
    raw: str = ""
    """The cluster's own words."""
    final_after_seconds: float | None = None
    """It will not go away by itself: after so long the gang ends with exit 10. None: it may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Everything but the root may be unknown: an account that may not read it sees empty."""

    now: datetime
    num_nodes: int
    root: Object | None = None
    pods: list[Object] = field(default_factory=list)
    """Of the gang."""
    events: list[Object] = field(default_factory=list)
    """About the root and its pods."""
    others: list[Object] = field(default_factory=list)
    """Pods of other gangs that hold resources."""
    nodes: list[Object] = field(default_factory=list)
    workload: Object | None = None
    """Kueue's, of this gang."""
    cluster_queue: Object | None = None
    """Kueue's, behind the gang's queue; read where the queue is said to be inactive."""
    pending: list[Object] = field(default_factory=list)
    """Kueue's pending workloads of the same queue, in order."""

    def recent_events(self, *reasons: str, about: str = "") -> list[Object]:
        """Events of these reasons that are no history, the latest last."""
        found = [
            event
            for event in self.events
            if event.get("reason") in reasons
            and about in ("", event.get("involvedObject", {}).get("name"))
            and self.now - event_time(event, self.now) <= EVENTS_LAST
        ]
        return sorted(found, key=lambda event: event_time(event, self.now))

    def waiting_containers(self) -> Iterator[tuple[Object, Object]]:
        """(pod, its container's waiting state) of the pods whose container does not run, or one that runs before it."""
        for pod in self.pods:
            status = pod.get("status") or {}
            mine = [each for each in status.get("containerStatuses") or () if each.get("name") == CONTAINER]
            for each in (*(status.get("initContainerStatuses") or ()), *mine):
                waits = (each.get("state") or {}).get("waiting")
                if waits and waits.get("reason") != "PodInitializing":
                    yield pod, waits

    @property
    def num_up(self) -> int:
        return sum(is_ready(pod) or phase(pod) == "Succeeded" for pod in self.pods)


def event_time(event: Object, default: datetime) -> datetime:
    series = event.get("series") or {}
    stamp = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return read_time(stamp) or default


def read_time(stamp: Any) -> datetime | None:
    """An RFC 3339 time; None where it is none."""
    try:
        found = datetime.fromisoformat(stamp)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None


def one_line(text: Any, most: int = 300) -> str:
    """`text` as part of a sentence."""
    words = " ".join(str(text or "").split()).rstrip(".")
    return words if len(words) <= most else words[: most - 1] + "…"


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
