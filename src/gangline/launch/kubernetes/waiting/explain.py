"""Explains in one sentence why a gang does not run yet, and reports changes of it to a follower.

`explain` checks possible reasons from the gravest on and takes the first that applies.
"""

import time
from collections.abc import Callable

from gangline.launch.kubernetes.objects.labels import GANG, QUEUED, STARTS_NOW, WAITS
from gangline.launch.kubernetes.state.pods import end_condition, phase
from gangline.launch.kubernetes.waiting import admission, containers, kai, kueue, scheduler, volcano
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, counted, one_line

_GRAVEST_FIRST: tuple[Callable[[Snapshot], WaitingReason | None], ...] = (
    admission.refused,
    containers.useless,
    containers.misconfigured,
    kueue.impossible,
    volcano.impossible,
    kai.impossible,
    admission.no_jobset,
    scheduler.silent,
    containers.not_made,
    containers.not_pulled,
    volcano.waits,
    kai.waits,
    scheduler.unschedulable,
    admission.quota_used,
    kueue.queued,
)


def explain(seen: Snapshot) -> WaitingReason | None:
    """Why the gang does not run; None: it runs or has ended."""
    if seen.root is None or end_condition(seen.root) or seen.num_up >= seen.num_nodes:
        return None
    for row in _GRAVEST_FIRST:
        if waiting := row(seen):
            return waiting
    return _on_its_way(seen)


def _on_its_way(seen: Snapshot) -> WaitingReason:
    """The progress of a gang that starts normally."""
    if ((seen.root or {}).get("spec") or {}).get("suspend"):
        return _suspended(seen)
    if gated := sum(bool((pod.get("spec") or {}).get("schedulingGates")) for pod in seen.pods):
        placed = len(seen.pods) - gated
        return WaitingReason(kind="placing", sentence=f"being placed: {placed} of {seen.num_nodes} pods have a server")
    if len(seen.pods) < seen.num_nodes:
        return WaitingReason(kind="creating", sentence=f"{len(seen.pods)} of {seen.num_nodes} pods are created")
    return containers.pulling(seen) or _starting(seen)


def _suspended(seen: Snapshot) -> WaitingReason:
    annotations = (seen.root or {})["metadata"].get("annotations") or {}
    if annotation := annotations.get(WAITS):
        starts_now = one_line(annotations.get(STARTS_NOW, ""))
        return WaitingReason(
            kind="placer", sentence=one_line(annotation, 500), would_start_now=starts_now, raw=annotation
        )
    if QUEUED in annotations:
        return WaitingReason(kind="placer", sentence="in the queue of the placer, which has not processed it yet")
    return WaitingReason(kind="suspended", sentence="suspended: a queue holds it, or its submission is not finished")


def _starting(seen: Snapshot) -> WaitingReason:
    running = sum(phase(pod) == "Running" for pod in seen.pods)
    if running < seen.num_nodes:
        return WaitingReason(kind="starting", sentence=f"{running} of {seen.num_nodes} pods have started")
    waits = counted(seen.num_nodes - seen.num_up, "pod", "pods")
    metadata = (seen.root or {})["metadata"]
    gang, namespace = (metadata.get("labels") or {}).get(GANG, "NAME"), metadata.get("namespace", "NAMESPACE")
    look = f"kubectl -n {namespace} logs -l {GANG}={gang} shows what they do"
    return WaitingReason(kind="joining", sentence=f"all pods run; ranks of {waits} have not joined yet; {look}")


_LOOK_SECONDS = 3.0
"""Pause between looks."""


_SAID_SECONDS = 10.0
"""Minimum time between two different reports."""


class WaitReporter:
    """Reports the reason of a waiting gang when it changes, at a limited rate."""

    def __init__(self) -> None:
        self.sentence = ""
        """The sentence last reported."""
        self._now: WaitingReason | None = None
        self._looked = self._said = float("-inf")
        self._hopeless_at = float("inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._looked >= _LOOK_SECONDS

    @property
    def is_hopeless(self) -> bool:
        """Whether a reason that does not resolve by itself has lasted for its `final_after_seconds`."""
        return time.monotonic() >= self._hopeless_at

    @property
    def reason(self) -> str:
        """The sentence last seen."""
        return "no reason is known" if self._now is None else self._now.sentence

    def take(self, waiting: WaitingReason | None) -> None:
        """Store the latest reason; None: it does not wait."""
        self._looked = time.monotonic()
        if waiting is None or waiting.final_after_seconds is None:
            self._hopeless_at = float("inf")
        elif self._now is None or self._now.kind != waiting.kind or self._hopeless_at == float("inf"):
            self._hopeless_at = self._looked + waiting.final_after_seconds
        self._now = waiting

    def news(self) -> WaitingReason | None:
        """The reason to report now, if it changed; a hopeless one is reported at once."""
        if self._now is None or self._now.sentence == self.sentence:
            return None
        if time.monotonic() - self._said < _SAID_SECONDS and not self.is_hopeless:
            return None
        self.sentence, self._said = self._now.sentence, time.monotonic()
        return self._now

    def clear(self) -> None:
        """Forget the reason: the gang does not wait any more."""
        self.sentence, self._now, self._hopeless_at = "", None, float("inf")
