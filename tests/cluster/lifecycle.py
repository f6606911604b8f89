"""The life of an Indexed Job whose pods stay gated, as any cluster tells it: no kubelet is needed."""

import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tests.cluster.script import JOB

from gangline.launch.kubernetes.client.api import ApiRejected
from gangline.launch.kubernetes.client.client import KubernetesClient

PATIENCE_SECONDS = 60.0
Object = dict[str, Any]


def run(api: KubernetesClient, *, move: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """What was seen at each turn; `move` lets a fake cluster go on."""
    jobs = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
    pods = f"/api/v1/namespaces/{api.namespace}/pods"
    seen: dict[str, Any] = {}

    def job() -> Object:
        return api.get(f"{jobs}/life") or {}

    def mine() -> list[Object]:
        return api.items(pods, labels="life=yes")[0]

    def until(what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"waited for: {what}; {_status(job())}"
            move()
            time.sleep(0.02)

    api.create(jobs, _job("life"))
    until("suspended", lambda: _has(job(), "Suspended"))
    seen["suspended"] = _status(job())
    api.patch(f"{jobs}/life", {"spec": {"suspend": False}})
    until("pods", lambda: len(mine()) == 2 and job()["status"].get("active") == 2)
    seen["resumed"] = _status(job())
    seen["pods"] = sorted((_pod(pod) for pod in mine()), key=str)
    seen["start of what runs"] = _refusal(lambda: api.patch(f"{jobs}/life/status", {"status": {"startTime": None}}))
    api.patch(f"{jobs}/life", {"spec": {"suspend": True}})
    until("no pods", lambda: not mine() and _has(job(), "Suspended"))
    seen["suspended again"] = _status(job())
    time.sleep(1.0)
    api.patch(f"{jobs}/life/status", {"status": {"startTime": None}})
    seen["start forgotten"] = _status(job())
    api.patch(f"{jobs}/life", {"spec": {"suspend": False, "activeDeadlineSeconds": 600}})
    until("pods again", lambda: len(mine()) == 2 and job()["status"].get("active") == 2)
    seen["started anew"] = _status(job())
    api.patch(f"{jobs}/life", {"spec": {"suspend": True}})
    until("no pods again", lambda: not mine() and _has(job(), "Suspended"))
    time.sleep(1.0)
    api.patch(f"{jobs}/life", {"spec": {"suspend": False, "activeDeadlineSeconds": 1}})
    until("the deadline, which counts from the start before", lambda: _has(job(), "Failed"))
    seen["late"] = _status(job())
    until("its pods gone", lambda: not mine())
    api.delete(f"{jobs}/life", propagation="Foreground")
    until("the job gone", lambda: not job())
    return seen


def _job(name: str) -> Object:
    job = deepcopy(JOB)
    job["metadata"]["name"] = name
    job["spec"] |= {"backoffLimit": 0, "podReplacementPolicy": "Failed"}
    template = job["spec"]["template"]
    template["metadata"]["labels"] |= {"life": "yes"}
    template["spec"] |= {"schedulingGates": [{"name": "gangline/placement"}], "subdomain": name}
    return job


def _has(job: Object, kind: str) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _refusal(call: Callable[[], object]) -> str | None:
    try:
        call()
    except ApiRejected as error:
        return str(error).partition(": ")[2]
    return None


def _status(job: Object) -> Object:
    status = job.get("status", {})
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in status.get("conditions", ())}
    counts = {name: status.get(name) for name in ("active", "ready", "succeeded")}
    return {**counts, "conditions": conditions, "started": "startTime" in status}


def _pod(pod: Object) -> Object:
    about = pod["metadata"]
    return {
        "name": about["name"].rpartition("-")[0],
        "labels": sorted(about["labels"]),
        "annotations": sorted(each for each in about["annotations"] if "limit-ranger" not in each),
        "finalizers": about["finalizers"],
        "owner": [(each["kind"], each["name"], each["controller"]) for each in about["ownerReferences"]],
        "hostname": pod["spec"]["hostname"],
        "gates": pod["spec"]["schedulingGates"],
        "phase": pod["status"]["phase"],
        "conditions": [(each["type"], each["reason"]) for each in pod["status"]["conditions"]],
    }
