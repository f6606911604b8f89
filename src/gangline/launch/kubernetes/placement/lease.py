"""Lease of the placer: one placer works, the others stand by. It saves effort only; the ledger gives safety."""

from datetime import datetime, timedelta

from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import PLACER_LEASE

DURATION_SECONDS = 15


def lease_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def hold_lease(api: KubernetesApi, *, holder: str, now: datetime) -> bool:
    """Take or renew the lease; False while another holds it."""
    path = lease_path(api.namespace)
    found = api.get(f"{path}/{PLACER_LEASE}")
    try:
        if found is None:
            api.create(path, _lease(api.namespace, _spec(holder, now, now, 0)))
            return True
        spec = found.get("spec") or {}
        if spec.get("holderIdentity") == holder:
            return _renew(api, found, holder, now)
        if _is_fresh(spec, now):
            return False
        spec = _spec(holder, now, now, int(spec.get("leaseTransitions") or 0) + 1)
        return api.replace(f"{path}/{PLACER_LEASE}", {**found, "spec": spec}) is not None
    except ApiConflict:
        return False


def _renew(api: KubernetesApi, found: Object, holder: str, now: datetime) -> bool:
    spec = found["spec"]
    renewed = _time(spec.get("renewTime"))
    if renewed is not None and abs(now - renewed) < timedelta(seconds=DURATION_SECONDS / 3):
        return True
    since = _time(spec.get("acquireTime")) or now
    body = {**found, "spec": _spec(holder, now, since, int(spec.get("leaseTransitions") or 0))}
    return api.replace(f"{lease_path(api.namespace)}/{PLACER_LEASE}", body) is not None


def _is_fresh(spec: Object, now: datetime) -> bool:
    renewed = _time(spec.get("renewTime"))
    seconds = int(spec.get("leaseDurationSeconds") or DURATION_SECONDS)
    return renewed is not None and abs(now - renewed) < timedelta(seconds=seconds)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _spec(holder: str, now: datetime, since: datetime, transitions: int) -> Object:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": DURATION_SECONDS,
        "acquireTime": _micro(since),
        "renewTime": _micro(now),
        "leaseTransitions": transitions,
    }


def _micro(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lease(namespace: str, spec: Object) -> Object:
    labels = {"app.kubernetes.io/managed-by": "gangline"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": PLACER_LEASE, "namespace": namespace, "labels": labels},
        "spec": spec,
    }
