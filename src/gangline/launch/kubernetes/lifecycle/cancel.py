"""Cancels a gang, and sweeps those of runs that are over.

A cancellation writes the final state, then deletes the root with everything that it owns. A sweep finds objects by
label.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gangline.errors import CancelledError, CapacityError
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import VOLCANO_VERSION, ClusterFacts
from gangline.launch.kubernetes.lifecycle.final_state import (
    FINAL_STATE,
    FinalState,
    close_final_state,
    final_state_path,
    write_final_state,
)
from gangline.launch.kubernetes.objects.labels import (
    CANCELLED,
    DISRUPTION,
    END,
    GANG,
    MODULE_ROLE,
    ROLE,
    RUN,
    collection_path,
)
from gangline.launch.kubernetes.state.gang_state import PodEnd, combine_ends, pod_end
from gangline.launch.kubernetes.state.pods import is_over, list_pods, pods_path
from gangline.launch.kubernetes.state.roots import (
    JOB,
    JOBSET,
    RUNTIME,
    TRAINJOB,
    Root,
    RootKind,
    deletion_propagation,
    find_root,
)
from gangline.launch.protocol import Life, SweepResult
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    path: str
    object: Object

    @property
    def gang(self) -> str:
        labels = self.object["metadata"].get("labels") or {}
        return str(labels.get(GANG) or labels.get(FINAL_STATE))

    @property
    def run(self) -> str:
        return str((self.object["metadata"].get("labels") or {}).get(RUN, ""))


def sweep_gangs(
    api: KubernetesApi, *, facts: ClusterFacts, now: datetime, life: Callable[[str], Life]
) -> list[SweepResult]:
    """One result per gang. Gangs of an `unknown` run are deleted only after their own latest end."""
    gangs: dict[str, list[_Found]] = {}
    for found in _everything(api, facts):
        gangs.setdefault(found.gang, []).append(found)
    lives: dict[str, Life] = {}
    swept = []
    for gang, things in sorted(gangs.items()):
        run = things[0].run
        known = lives[run] if run in lives else lives.setdefault(run, life(run))
        over = [each for each in things if _is_over(each, known, now)]
        deleted = [_delete(api, each) for each in over]
        swept.append(SweepResult(name=gang, run=run, life=known, deleted=any(deleted)))
    return swept


def _everything(api: KubernetesApi, facts: ClusterFacts) -> Iterable[_Found]:
    """Objects of gangs: roots first, which own the others; the rest is listed for roots that are already gone."""
    namespace = api.namespace
    for kind in (TRAINJOB, JOBSET, JOB):
        if kind is JOB or (facts.jobset if kind is JOBSET else facts.trainer is not None):
            # objects with an owner are deleted with it: JobSets of a TrainJob, Jobs of a JobSet
            yield from (each for each in _list(api, kind.path(namespace), GANG) if not _is_owned(each.object))
    if facts.trainer is not None:
        yield from _list(api, RUNTIME.path(namespace), GANG)
    yield from _unowned(api, final_state_path(api), FINAL_STATE)
    for group_version, plural in (("networking.k8s.io/v1", "networkpolicies"), ("v1", "services"), ("v1", "secrets")):
        yield from _unowned(api, collection_path(group_version, plural, namespace))
    if facts.volcano is not None:
        yield from _unowned(api, collection_path(VOLCANO_VERSION, "podgroups", namespace))
    yield from _unowned(api, pods_path(api))


def _unowned(api: KubernetesApi, path: str, label: str = GANG) -> Iterable[_Found]:
    """Objects without an owner; empty if this account may not list them."""
    try:
        return [each for each in _list(api, path, label) if not _is_owned(each.object)]
    except ApiForbidden:
        return []


def _list(api: KubernetesApi, path: str, label: str) -> list[_Found]:
    found, _ = api.items(path, labels=label, keep=_slim)
    return [_Found(path=f"{path}/{each['metadata']['name']}", object=each) for each in found]


def _slim(found: Object) -> Object:
    metadata = found["metadata"]
    kept = ("name", "uid", "labels", "ownerReferences")
    end = (metadata.get("annotations") or {}).get(END)
    return {"metadata": {key: metadata[key] for key in kept if key in metadata} | {"annotations": {END: end}}}


def _is_owned(found: Object) -> bool:
    return any(each.get("kind") != "Workflow" for each in found["metadata"].get("ownerReferences") or ())


def _is_over(found: _Found, life: Life, now: datetime) -> bool:
    if life in ("ended", "orphan"):
        return True
    end = found.object["metadata"]["annotations"][END]
    return life == "unknown" and end is not None and now > datetime.fromisoformat(end)


def _delete(api: KubernetesApi, found: _Found) -> bool:
    return api.delete(found.path, uid=found.object["metadata"]["uid"], propagation=deletion_propagation(found.path))
