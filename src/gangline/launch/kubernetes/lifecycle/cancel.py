"""Cancels a gang: its final state is written first, then its root is deleted with all that it owns."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gangline.errors import CancelledError, CapacityError
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.lifecycle.final_state import FinalState, close_final_state, write_final_state
from gangline.launch.kubernetes.objects.labels import CANCELLED, DISRUPTION
from gangline.launch.kubernetes.state.gang_end import PodEnd, combine_ends, pod_end
from gangline.launch.kubernetes.state.pods import is_over, list_pods, pods_path
from gangline.launch.kubernetes.state.roots import Root, RootKind, deletion_options, find_root
from gangline.spec.gang.status import GangEnd

POLL_SECONDS = 0.25
FORCE_SECONDS = 120.0
"""What a pod may take beyond its grace before it is deleted by force: its server is dead."""
_NOW_SECONDS = 1
"""Grace of a stop that saves nothing: the kubelet still confirms that the container is gone."""


def cancel_gang(api: KubernetesApi, name: str, kinds: tuple[RootKind, ...], *, reason: str, save: bool) -> None:
    """As the launcher's protocol says. Again, it goes on where the first one was lost."""
    root = find_root(api, name, kinds)
    if root is None:
        PodDeletion(api, name, save=save).wait()
    elif root.outcome is None or root.is_being_deleted:
        reason = root.cancelled or reason
        api.patch(root.path, {"metadata": {"uid": root.uid, "annotations": {CANCELLED: reason}}})
        end_gang(api, root, _end(CancelledError.exit_code, f"cancelled: {reason}"), save=save)


def refuse_gang(api: KubernetesApi, root: Root, *, exit_code: int, reason: str) -> FinalState:
    """End a gang that can never start."""
    return end_gang(api, root, _end(exit_code, reason), save=False)


def end_gang(api: KubernetesApi, root: Root, end: GangEnd, *, save: bool) -> FinalState:
    """Write `end` down, delete the root, and wait until neither it nor a pod is listed.

    Args:
        api: Of the gang.
        root: By its uid: a later root of that name is left alone.
        end: What `collect` answers from now on; what its pods still say of time and generations is added.
        save: Give ranks their grace to save in.
    """
    kept = FinalState(uid=root.uid, podset=root.podset(), end=end, is_closed=False)
    kept = write_final_state(api, kept, now=datetime.now(UTC))
    makers = PodOwners(api, root)
    api.delete(root.path, uid=root.uid, propagation=deletion_options(root.path))
    leaving = PodDeletion(api, kept.podset.name, save=save)
    leaving.wait()
    _wait_for_makers(makers, leaving)
    return close_final_state(api, kept.podset.name, lambda told: combine_ends(told, leaving.ends.values())) or kept


@dataclass
class PodDeletion:
    """The pods of a gang whose root is going, until none is listed."""

    api: KubernetesApi
    name: str
    save: bool
    ends: dict[str, PodEnd] = field(default_factory=dict)
    """By uid, as they were seen."""
    _told: set[str] = field(default_factory=set)

    def wait(self) -> None:
        """Raises `CapacityError` where pods do not even go by force."""
        started = time.monotonic()
        while pods := list_pods(self.api, self.name):
            for pod in pods:
                end = pod_end(pod)
                if end is not None:
                    self.ends[end.uid] = end
                self._tell(pod)
            self._force(pods, time.monotonic() - started)
            time.sleep(POLL_SECONDS)

    def _tell(self, pod: Object) -> None:
        """Delete each pod once: the garbage collector would, a little later and with all its grace."""
        uid = pod["metadata"]["uid"]
        if uid not in self._told and not (self.save and "deletionTimestamp" in pod["metadata"]):
            self._told.add(uid)
            _delete_pod(self.api, pod, grace_seconds=None if self.save else _NOW_SECONDS)

    def _force(self, pods: list[Object], waited: float) -> None:
        patience = max(float(pod["metadata"].get("deletionGracePeriodSeconds") or 0) for pod in pods) + FORCE_SECONDS
        if waited < patience:
            return
        for pod in pods:
            _delete_pod(self.api, pod, grace_seconds=0)
        if waited > patience + FORCE_SECONDS:
            names = ", ".join(pod["metadata"]["name"] for pod in pods[:8])
            raise CapacityError(f"gang {self.name}: pods do not go, not even by force: {names}; see their finalizers")


def _delete_pod(api: KubernetesApi, pod: Object, *, grace_seconds: int | None) -> None:
    api.delete(f"{pods_path(api)}/{pod['metadata']['name']}", uid=pod["metadata"]["uid"], grace_seconds=grace_seconds)


def fail_and_delete_pod(api: KubernetesApi, pod: Object) -> None:
    """Forget a pod whose server is dead, so that another is made in its place.

    Under `podReplacementPolicy: Failed` the controller waits for it to fail, which takes a kubelet: a force delete
    alone leaves it, held by its finalizer. So it is told to have failed, and not by its own fault. Should it run
    after all, the generation of the next one fences it.
    """
    if not is_over(pod):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lost = {"type": DISRUPTION, "status": "True", "reason": "DeadServer", "lastTransitionTime": now}
        lost["message"] = f"{(pod.get('spec') or {}).get('nodeName') or 'its server'} does not confirm its end"
        others = [
            each for each in pod["status"].get("conditions") or () if each.get("type") not in (DISRUPTION, "Ready")
        ]
        failed = {"phase": "Failed", "conditions": [*others, lost]}
        path = f"{pods_path(api)}/{pod['metadata']['name']}/status"
        api.patch(path, {"metadata": {"uid": pod["metadata"]["uid"]}, "status": failed})
    _delete_pod(api, pod, grace_seconds=0)


class PodOwners:
    """The root, and what it made that makes pods: told from those of a later gang of that name by their owners."""

    def __init__(self, api: KubernetesApi, root: Root) -> None:
        self._api, self._paths, self._uids = api, root.lineage, {root.uid}
        self.left()

    def left(self) -> list[str]:
        """Paths at which one still stands."""
        return [path for path in self._paths if self._stands(path)]

    def _stands(self, path: str) -> bool:
        metadata = (self._api.get(path) or {}).get("metadata") or {}
        owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
        if not self._uids & {metadata.get("uid"), *owners}:
            return False
        self._uids.add(metadata["uid"])
        return True


def _wait_for_makers(makers: PodOwners, leaving: PodDeletion) -> None:
    """They may stay until the last pod is gone; what they made meanwhile goes like the others."""
    patience = time.monotonic() + FORCE_SECONDS
    while left := makers.left():
        if time.monotonic() > patience:
            raise CapacityError(f"{left[0]} is deleted and does not go; see its finalizers")
        leaving.wait()
        time.sleep(POLL_SECONDS)


def _end(exit_code: int, reason: str) -> GangEnd:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return GangEnd(exit_code=exit_code, retry="never", reason=reason, time=now)
