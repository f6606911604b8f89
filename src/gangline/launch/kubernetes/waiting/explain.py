"""Explains in one sentence why a gang does not run yet, and reports the sentence to a follower when it changes.

`explain` asks every part of the cluster in the order of gravity and takes the first answer.
"""

import time
from collections.abc import Callable

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import GANG, QUEUED, WAITS
from gangline.launch.kubernetes.state.pods import phase, true_condition
from gangline.launch.kubernetes.waiting import admission, containers, kueue, scheduler
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason, counted, one_line

_GRAVEST_FIRST: tuple[Callable[[Snapshot], WaitingReason | None], ...] = (
    admission.refused,
    containers.useless,
    containers.misconfigured,
    kueue.impossible,
    admission.no_jobset,
    scheduler.silent,
    containers.not_made,
    containers.not_pulled,
    scheduler.unschedulable,
    admission.quota_used,
    kueue.queued,
)


def explain(seen: Snapshot) -> WaitingReason | None:
    """Why the gang does not run; None: it does, or did."""
    if seen.root is None or _has_ended(seen.root) or seen.num_up >= seen.num_nodes:
        return None
    for row in _GRAVEST_FIRST:
        if waiting := row(seen):
            return waiting
    return _on_its_way(seen)


def _has_ended(root: Object) -> bool:
    return any(true_condition(root, kind) for kind in ("Complete", "Completed", "Failed"))


def _on_its_way(seen: Snapshot) -> WaitingReason:
    """Nothing is wrong: how far it is."""
    if ((seen.root or {}).get("spec") or {}).get("suspend"):
        return _suspended(seen)
    if gated := sum(bool((pod.get("spec") or {}).get("schedulingGates")) for pod in seen.pods):
        placed = len(seen.pods) - gated
        return WaitingReason(kind="placing", sentence=f"being placed: {placed} of {seen.num_nodes} pods have a server")
    if len(seen.pods) < seen.num_nodes:
        return WaitingReason(kind="creating", sentence=f"{len(seen.pods)} of {seen.num_nodes} pods are made")
    return containers.pulling(seen) or _starting(seen)


def _suspended(seen: Snapshot) -> WaitingReason:
    annotations = (seen.root or {})["metadata"].get("annotations") or {}
    if said := annotations.get(WAITS):
        return WaitingReason(kind="placer", sentence=one_line(said), raw=said)
    if QUEUED in annotations:
        return WaitingReason(kind="placer", sentence="in the queue of the placer, which has not looked at it yet")
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


LOOK_SECONDS = 3.0
"""How often the reason is asked for."""


SAID_SECONDS = 10.0
"""How often another one is told at most."""


class WaitReporter:
    """One sentence at a time."""

    def __init__(self) -> None:
        self.sentence = ""
        """As it was last told."""
        self._now: WaitingReason | None = None
        self._looked = self._said = float("-inf")
        self._hopeless_at = float("inf")

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._looked >= LOOK_SECONDS

    @property
    def is_hopeless(self) -> bool:
        """What will not go away by itself has lasted for as long as it may."""
        return time.monotonic() >= self._hopeless_at

    @property
    def reason(self) -> str:
        """As it was last seen."""
        return "no reason is known" if self._now is None else self._now.sentence

    def take(self, waiting: WaitingReason | None) -> None:
        self._looked = time.monotonic()
        if waiting is None or waiting.final_after_seconds is None:
            self._hopeless_at = float("inf")
        elif self._now is None or self._now.kind != waiting.kind or self._hopeless_at == float("inf"):
            self._hopeless_at = self._looked + waiting.final_after_seconds
        self._now = waiting

    def news(self) -> WaitingReason | None:
        """What is to be told now; a last word is told at once."""
        if self._now is None or self._now.sentence == self.sentence:
            return None
        if time.monotonic() - self._said < SAID_SECONDS and not self.is_hopeless:
            return None
        self.sentence, self._said = self._now.sentence, time.monotonic()
        return self._now

    def clear(self) -> None:
        """It does not wait any more."""
        self.sentence, self._now, self._hopeless_at = "", None, float("inf")
