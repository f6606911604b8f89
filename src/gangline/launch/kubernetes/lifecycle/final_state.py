"""Final state of a gang: a ConfigMap that the first driver to see the end writes, and that all later ones read.

It outlives the root, has no owner and is deleted by the sweeper. It holds no name of a pod and no secret. A gang that
has one has ended: it is adopted as ended, and never started again.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gangline.errors import IntegrityError, StillRunning
from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import END, MANAGED_BY, RUN, collection_path, secret_name
from gangline.launch.kubernetes.objects.render import owned
from gangline.launch.kubernetes.objects.service_and_secret import empty_secret, secrets_path
from gangline.launch.kubernetes.state.gang_state import PodEnd, combine_ends, gang_end, pod_end
from gangline.launch.kubernetes.state.pods import list_pods
from gangline.launch.kubernetes.state.roots import Root
from gangline.spec.codec import canonical, from_json
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import GangEnd

FINAL_STATE = "gangline/ended"
"""Label: name of the gang."""
_FINAL_STATE_DAYS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalState:
    """How a gang ended, as stored for later drivers."""

    uid: str
    """UID of the root."""
    podset: PodSet
    end: GangEnd
    is_closed: bool
    """It does not change any more."""


def final_state_path(api: KubernetesApi, name: str = "") -> str:
    """Path of the final state of gang `name`; without a name, of the collection."""
    path = collection_path("v1", "configmaps", api.namespace)
    return f"{path}/{name}-end" if name else path


def read_final_state(api: KubernetesApi, name: str) -> FinalState | None:
    """Final state of gang `name`; None: there is none. Raises `IntegrityError` if the ConfigMap is not one."""
    found = api.get(final_state_path(api, name))
    return None if found is None else _read(api, name, found)


def write_final_state(api: KubernetesApi, final_state: FinalState, *, now: datetime) -> FinalState:
    """Store the final state, unless there is one; returns the one that is stored."""
    try:
        api.create(final_state_path(api), _config_map(api.namespace, final_state, now))
    except ApiConflict:
        return read_final_state(api, final_state.podset.name) or final_state
    return final_state


def close_final_state(api: KubernetesApi, name: str, add: Callable[[GangEnd], GangEnd]) -> FinalState | None:
    """Complete the end with `add` and close it; the first of several writers wins. None: there is no final state."""
    while (found := api.get(final_state_path(api, name))) is not None:
        final_state = _read(api, name, found)
        if final_state.is_closed:
            return final_state
        closed = replace(final_state, end=add(final_state.end), is_closed=True)
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            api.patch(final_state_path(api, name), {"metadata": version, "data": _data(closed)})
        except ApiConflict:
            continue
        return closed
    return None


def _read(api: KubernetesApi, name: str, found: Object) -> FinalState:
    data = found.get("data") or {}
    if (
        FINAL_STATE not in (found["metadata"].get("labels") or {})
        or not {"uid", "podset", "end", "closed"} <= data.keys()
    ):
        raise IntegrityError(
            f"{final_state_path(api, name)} is not the final state of a gang; delete it, or choose another name"
        )
    return FinalState(
        uid=data["uid"],
        podset=PodSet.from_json(data["podset"]),
        end=from_json(GangEnd, data["end"]),
        is_closed=data["closed"] == "true",
    )


def _data(final_state: FinalState) -> dict[str, str]:
    return {
        "uid": final_state.uid,
        "podset": final_state.podset.to_json().decode(),
        "end": canonical(final_state.end).decode(),
        "closed": "true" if final_state.is_closed else "false",
    }


def _config_map(namespace: str, final_state: FinalState, now: datetime) -> Object:
    name = final_state.podset.name
    labels = {FINAL_STATE: name, RUN: final_state.podset.run, MANAGED_BY: "gangline"}
    end = (now + timedelta(days=_FINAL_STATE_DAYS)).isoformat(timespec="seconds")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{name}-end",
            "namespace": namespace,
            "labels": labels,
            "annotations": {END: end},
        },
        "data": _data(final_state),
    }


POLL_SECONDS = 0.2
_CLOSING_SECONDS = 5.0
"""How long the process that deleted a root may take to close the final state before another one does."""


def close_ended_gang(api: KubernetesApi, root: Root, *, seen: Iterable[PodEnd] = ()) -> FinalState | None:
    """Write and close the final state of a gang whose root has ended, and remove the values of its Secret.

    Args:
        api: Of the gang.
        root: As read just now.
        seen: Ends of pods that are already gone.
    """
    podset = root.podset()
    ends = {each.uid: each for each in seen}
    ends |= {each.uid: each for pod in list_pods(api, podset.name) if (each := pod_end(pod)) is not None}
    end = gang_end(_failed_job_of(api, root), ends.values(), deadline_key=podset.deadline_key)
    write_final_state(api, FinalState(uid=root.uid, podset=podset, end=end, is_closed=True), now=datetime.now(UTC))
    if podset.secrets:
        _revoke_secret(api, root)
    return close_final_state(api, podset.name, lambda _: end)


def _failed_job_of(api: KubernetesApi, root: Root) -> Root:
    """The Job below the root if that failed: JobSet and Trainer do not repeat its reason."""
    if root.ended_well or len(root.lineage) == 1:
        return root
    path = root.lineage[-1]
    found = api.get(path)
    job = Root(path, found) if found is not None else root
    return job if job.condition("Failed") else root


def close_deleted_gang(api: KubernetesApi, root: Root, *, seen: Iterable[PodEnd]) -> FinalState | None:
    """Final state of a gang whose root has just been deleted; written here if its deleter does not."""
    podset = root.podset()
    deadline = time.monotonic() + _CLOSING_SECONDS
    while time.monotonic() < deadline:
        final_state = read_final_state(api, podset.name)
        if final_state is not None and final_state.is_closed:
            return final_state
        time.sleep(POLL_SECONDS)
    ends = list(seen)
    lost = FinalState(
        uid=root.uid, podset=podset, end=gang_end(root, ends, deadline_key=podset.deadline_key), is_closed=False
    )
    write_final_state(api, lost, now=datetime.now(UTC))
    return close_final_state(api, podset.name, lambda end: combine_ends(end, ends))


def find_final_state(api: KubernetesApi, name: str) -> FinalState | None:
    """Final state of a gang without a root; closed now if the deleter died before it did. None: there is none.

    Raises:
        StillRunning: Its pods are still being deleted.
    """
    final_state = read_final_state(api, name)
    if final_state is None or final_state.is_closed:
        return final_state
    if list_pods(api, name):
        raise StillRunning(f"gang {name} is stopping; follow it, or cancel it again")
    return close_final_state(api, name, lambda end: end)


def _revoke_secret(api: KubernetesApi, root: Root) -> None:
    """Remove the values; the Secret itself is deleted with its root."""
    body = owned(empty_secret(root.podset(), job=root.job), root.object)
    api.replace(f"{secrets_path(api.namespace)}/{secret_name(root.job)}", body)
