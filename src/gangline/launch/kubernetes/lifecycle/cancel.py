"""Cancels a gang: writes its final state, then deletes its root with everything that it owns."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gangline.errors import CancelledError, CapacityError
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.lifecycle.final_state import FinalState, close_final_state, write_final_state
from gangline.launch.kubernetes.objects.labels import CANCELLED, DISRUPTION, MODULE_ROLE, ROLE, RUN
from gangline.launch.kubernetes.state.gang_state import PodEnd, combine_ends, pod_end
from gangline.launch.kubernetes.state.pods import is_over, list_pods, pods_path
from gangline.launch.kubernetes.state.roots import JOB, Root, RootKind, deletion_propagation, find_root
from gangline.spec.gang.status import GangEnd

POLL_SECONDS = 0.25
FORCE_SECONDS = 120.0
"""How long a pod may outlive its grace before it is deleted by force, as its server is dead."""
_NOW_SECONDS = 1
"""Grace of a stop without a checkpoint; the kubelet still confirms the end of the container."""


def cancel_gang(api: KubernetesApi, name: str, kinds: tuple[RootKind, ...], *, reason: str, save: bool) -> None:
    """Cancel a gang by the launcher's protocol; a repeated call continues one that was interrupted."""
    root = find_root(api, name, kinds)
    if root is None:
        PodDeletion(api, name, save=save).wait()
    elif root.outcome is None or root.is_being_deleted:
        reason = root.cancelled or reason
        api.patch(root.path, {"metadata": {"uid": root.uid, "annotations": {CANCELLED: reason}}})
        end_gang(api, root, _end(CancelledError.exit_code, f"cancelled: {reason}"), save=save)


def cancel_module_jobs(api: KubernetesApi, run: str) -> None:
    """Delete the Jobs that run model code of `run` outside its gangs, left by a driver that was killed."""
    path = JOB.path(api.namespace)
    jobs, _ = api.items(path, labels=f"{RUN}={run},{ROLE}={MODULE_ROLE}")
    for job in jobs:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        api.delete(f"{path}/{name}", uid=uid, propagation=deletion_propagation(path))
        PodDeletion(api, name, save=False).wait()


def refuse_gang(api: KubernetesApi, root: Root, *, exit_code: int, reason: str) -> FinalState:
    """End a gang that can never start."""
    return end_gang(api, root, _end(exit_code, reason), save=False)


def end_gang(api: KubernetesApi, root: Root, end: GangEnd, *, save: bool) -> FinalState:
    """Write `end` as the final state, delete the root, and wait until it and its pods are gone.

    Args:
        api: Of the gang.
        root: Deleted by uid, so a later root of the same name is not affected.
        end: Result of `collect` from now on; time and generations of its pods are added.
        save: Give ranks their grace, to save a checkpoint.
    """
    final_state = FinalState(uid=root.uid, podset=root.podset(), end=end, is_closed=False)
    final_state = write_final_state(api, final_state, now=datetime.now(UTC))
    makers = PodOwners(api, root)
    api.delete(root.path, uid=root.uid, propagation=deletion_propagation(root.path))
    leaving = PodDeletion(api, final_state.podset.name, save=save)
    leaving.wait()
    _wait_for_makers(makers, leaving)
    return (
        close_final_state(api, final_state.podset.name, lambda end: combine_ends(end, leaving.ends.values()))
        or final_state
    )


@dataclass
class PodDeletion:
    """Deletes the pods of a gang whose root is being deleted."""

    api: KubernetesApi
    name: str
    save: bool
    ends: dict[str, PodEnd] = field(default_factory=dict)
    """Ends of the pods that were seen, by uid."""
    _deleted: set[str] = field(default_factory=set)

    def wait(self) -> None:
        """Wait until no pod is listed. Raises `CapacityError` if pods outlive a forced delete."""
        started = time.monotonic()
        while pods := list_pods(self.api, self.name):
            for pod in pods:
                end = pod_end(pod)
                if end is not None:
                    self.ends[end.uid] = end
                self._delete_once(pod)
            self._force(pods, time.monotonic() - started)
            time.sleep(POLL_SECONDS)

    def _delete_once(self, pod: Object) -> None:
        """Delete each pod once, before the garbage collector does so with its full grace."""
        uid = pod["metadata"]["uid"]
        if uid not in self._deleted and not (self.save and "deletionTimestamp" in pod["metadata"]):
            self._deleted.add(uid)
            _delete_pod(self.api, pod, grace_seconds=None if self.save else _NOW_SECONDS)

    def _force(self, pods: list[Object], waited: float) -> None:
        timeout = max(float(pod["metadata"].get("deletionGracePeriodSeconds") or 0) for pod in pods) + FORCE_SECONDS
        if waited < timeout:
            return
        for pod in pods:
            _delete_pod(self.api, pod, grace_seconds=0)
        if waited > timeout + FORCE_SECONDS:
            names = ", ".join(pod["metadata"]["name"] for pod in pods[:8])
            raise CapacityError(
                f"gang {self.name}: pods still exist after a forced delete: {names}; see their finalizers"
            )


def _delete_pod(api: KubernetesApi, pod: Object, *, grace_seconds: int | None) -> None:
    api.delete(f"{pods_path(api)}/{pod['metadata']['name']}", uid=pod["metadata"]["uid"], grace_seconds=grace_seconds)


def fail_and_delete_pod(api: KubernetesApi, pod: Object) -> None:
    """Mark a pod of a dead server as failed and delete it, so that its Job creates a replacement.

    Under `podReplacementPolicy: Failed` the controller waits until the pod has failed, which only a kubelet reports: a
    forced delete alone leaves the pod to its finalizer. The condition says that the platform took it. If its
    processes still run, the generation of the replacement fences them.
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
    """The root and the objects below it that create pods, distinguished by uid from a later gang of that name."""

    def __init__(self, api: KubernetesApi, root: Root) -> None:
        self._api, self._paths, self._uids = api, root.lineage, {root.uid}
        self.remaining()

    def remaining(self) -> list[str]:
        """Paths of those that still exist."""
        return [path for path in self._paths if self._exists(path)]

    def _exists(self, path: str) -> bool:
        metadata = (self._api.get(path) or {}).get("metadata") or {}
        owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
        if not self._uids & {metadata.get("uid"), *owners}:
            return False
        self._uids.add(metadata["uid"])
        return True


def _wait_for_makers(makers: PodOwners, leaving: PodDeletion) -> None:
    """Wait until the owners are gone; pods that they created in the meantime are deleted, too."""
    deadline = time.monotonic() + FORCE_SECONDS
    while left := makers.remaining():
        if time.monotonic() > deadline:
            raise CapacityError(f"{left[0]} was deleted but still exists; see its finalizers")
        leaving.wait()
        time.sleep(POLL_SECONDS)


def _end(exit_code: int, reason: str) -> GangEnd:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return GangEnd(exit_code=exit_code, retry="never", reason=reason, time=now)
