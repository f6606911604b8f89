"""One script of requests for any API server: what it answers is what the fake must answer, too.

Each step is (what, call); an answer is reduced to what consumers act on: a class and the server's words, or the parts
of an object that were asked for. Runs in an empty namespace whose name is its only argument.
"""

import re
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from gangline.errors import GanglineError
from gangline.launch.kubernetes.client.client import KubernetesClient

Step = tuple[str, Callable[[], Any]]
CONTAINER: dict[str, Any] = {
    "name": "node",
    "image": f"registry.example/pause@sha256:{'0' * 64}",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
ALLOWED: dict[str, Any] = {
    "serviceAccountName": "gangline-gang",
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [CONTAINER],
}
"""What the namespaces of gangs demand of a pod."""
LABELS = {"gangline/run": "r"}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "labels": {"gangline/gang": "j"}},
    "spec": {
        "suspend": True,
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "template": {"metadata": {"labels": LABELS}, "spec": {"restartPolicy": "Never", **ALLOWED}},
    },
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"gangline/gang": "p", **LABELS}},
    "spec": {
        "schedulingGates": [{"name": "gangline/placement"}],
        **ALLOWED,
    },
}


def run(api: KubernetesClient) -> list[tuple[str, Any]]:
    """Every step's answer, in order; the last ones delete what was made."""
    return [(what, _answer(api, call)) for what, call in (*_of_maps(api), *_of_jobs(api), *_of_pods(api))]


def _of_maps(api: KubernetesClient) -> list[Step]:
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"

    def config_map(name: str, **more: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"a": name}}, **more}

    def replaced_stale() -> Any:
        stale = api.get(f"{path}/m1")
        api.patch(f"{path}/m1", {"data": {"new": "er"}})
        return api.replace(f"{path}/m1", stale or {})

    def patched(*operations: dict[str, Any]) -> Any:
        return api.patch(f"{path}/m1", list(operations), kind="json")

    def version_of(name: str) -> str:
        return (api.get(f"{path}/{name}") or {})["metadata"]["resourceVersion"]

    def idle_patch() -> bool:
        before = version_of("m1")
        api.patch(f"{path}/m1", {"metadata": {"labels": {"a": "m1"}}})
        return version_of("m1") == before

    return [
        ("get what is not there", lambda: api.get(f"{path}/nobody")),
        ("create", lambda: _data(api.create(path, config_map("m1", data={"x": "1"})))),
        ("create again", lambda: api.create(path, config_map("m1"))),
        ("create for show", lambda: _data(api.create(path, config_map("m9", data={"x": "1"}), dry_run=True))),
        ("it was for show", lambda: api.get(f"{path}/m9")),
        ("create with an unknown field", lambda: api.create(path, config_map("m2", dada={"x": "1"}))),
        ("create with a wrong type", lambda: api.create(path, config_map("m2", data=["x"])) and None),
        ("create without a name", lambda: api.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})),
        ("create of another kind", lambda: api.create(path, {**config_map("m2"), "kind": "Secret"}) and None),
        ("create in no namespace", lambda: api.create("/api/v1/namespaces/not-there/configmaps", config_map("m"))),
        ("create what is not served", lambda: api.create("/apis/no.such/v1/namespaces/x/things", config_map("m"))),
        ("list what is not served", lambda: api.items("/apis/no.such/v1/things") and None),
        ("merge patch", lambda: _data(api.patch(f"{path}/m1", {"data": {"y": "2", "x": None}}))),
        ("merge patch that changes nothing keeps the version", idle_patch),
        ("merge patch of what is not there", lambda: api.patch(f"{path}/nobody", {"data": {}})),
        ("merge patch with an unknown field", lambda: api.patch(f"{path}/m1", {"dada": {"y": "2"}})),
        ("merge patch on an old version", lambda: api.patch(f"{path}/m1", {"metadata": {"resourceVersion": "1"}})),
        ("merge patch of another uid", lambda: api.patch(f"{path}/m1", {"metadata": {"uid": "another"}})),
        ("JSON patch", lambda: _data(patched({"op": "add", "path": "/data/z", "value": "3"}))),
        ("JSON patch, test fits", lambda: _data(patched({"op": "test", "path": "/data/z", "value": "3"}))),
        ("JSON patch, test fails", lambda: patched({"op": "test", "path": "/data/z", "value": "4"})),
        ("JSON patch, no such place", lambda: patched({"op": "remove", "path": "/data/nothing"})),
        ("JSON patch of a label with a slash", lambda: _labels(
            patched({"op": "add", "path": "/metadata/labels/gangline~1run", "value": "r"}))),
        ("replace on an old version", replaced_stale),
        ("replace of another uid", lambda: api.replace(f"{path}/m1", config_map("m1") | {
            "metadata": {"name": "m1", "uid": "another"}})),
        ("list by label", lambda: _names(api.items(path, labels="a=m1")[0])),
        ("list by label in a set", lambda: _names(api.items(path, labels="a in (m1,m2),gangline/run")[0])),
        ("list by labels that do not fit", lambda: _names(api.items(path, labels="a!=m1,a")[0])),
        ("list by a broken selector", lambda: api.items(path, labels="a=b=c")[0]),
        ("list by name", lambda: _names(api.items(path, fields="metadata.name=m1")[0])),
        ("list by a field that nobody knows", lambda: api.items(path, fields="data.x=1")[0]),
        ("items of a list have no kind", lambda: "kind" in api.items(path, labels="a=m1")[0][0]),
        ("watch", lambda: _watched(api, path)),
        ("watch by label", lambda: _watched(api, path, labels="a=w")),
        ("delete of another uid", lambda: api.delete(f"{path}/m1", uid="another")),
        ("delete", lambda: api.delete(f"{path}/m1")),
        ("delete again", lambda: api.delete(f"{path}/m1")),
    ]  # fmt: skip


def _of_jobs(api: KubernetesClient) -> list[Step]:
    path = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
    maps = f"/api/v1/namespaces/{api.namespace}/configmaps"

    def owned() -> Any:
        uid = (api.get(f"{path}/j") or {})["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid}
        metadata = {"name": "owned", "ownerReferences": [owner]}
        return _names([api.create(maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})])

    def with_field(**fields: Any) -> dict[str, Any]:
        job = deepcopy(JOB)
        job["metadata"]["name"] = "k"
        job["spec"]["template"]["spec"] |= fields
        return job

    suspended = lambda: (api.get(f"{path}/j") or {})["spec"]["suspend"]  # noqa: E731
    generation = lambda: (api.get(f"{path}/j") or {})["metadata"]["generation"]  # noqa: E731
    ours = [{"name": "x", "image": "y"}]
    return [
        ("create a job", lambda: _names([api.create(path, JOB)])),
        ("a suspended job has generation 1", generation),
        ("unknown field deep in a job", lambda: api.create(path, with_field(foo=1))),
        ("status is not written with the object", lambda: _status(api.patch(f"{path}/j", {"status": {"active": 7}}))),
        ("own something", owned),
        ("resume", lambda: api.patch(f"{path}/j", {"spec": {"suspend": False}}) and suspended()),
        ("a changed spec has generation 2", generation),
        ("change the template of a running job", lambda: _late(
            lambda: api.patch(f"{path}/j", {"spec": {"template": {"spec": {"containers": ours}}}}))),
        ("suspend again", lambda: api.patch(f"{path}/j", {"spec": {"suspend": True}}) and suspended()),
        ("delete the job", lambda: api.delete(f"{path}/j", uid=(api.get(f"{path}/j") or {})["metadata"]["uid"])),
        ("what it owned goes", lambda: _await(api, lambda: api.get(f"{maps}/owned") is None)),
    ]  # fmt: skip


def _of_pods(api: KubernetesClient) -> list[Step]:
    path = f"/api/v1/namespaces/{api.namespace}/pods"

    def patched(*operations: dict[str, Any]) -> Any:
        return _spec(api.patch(f"{path}/p", list(operations), kind="json"), "nodeSelector")

    host = {"kubernetes.io/hostname": "nowhere"}
    there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["nowhere"]}]}
    aim = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [there]}}}
    return [
        ("create a gated pod", lambda: _names([api.create(path, POD)])),
        ("a gated pod says so", lambda: _condition(api.get(f"{path}/p"), "PodScheduled")),
        ("logs of a pod that has none", lambda: list(api.logs("p"))),
        ("logs of no pod", lambda: list(api.logs("nobody"))),
        ("list pods by phase", lambda: _names(
            api.items(path, labels="gangline/gang=p", fields="status.phase=Pending")[0])),
        ("list pods by node", lambda: _names(api.items(path, fields="spec.nodeName=nowhere")[0])),
        ("another gate", lambda: patched({"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "a/b"}})),
        ("a selector for a gated pod", lambda: patched({"op": "add", "path": "/spec/nodeSelector", "value": host})),
        ("another value in the selector", lambda: patched(
            {"op": "replace", "path": "/spec/nodeSelector/kubernetes.io~1hostname", "value": "b"})),
        ("a node for a gated pod", lambda: _spec(
            api.patch(f"{path}/p", [{"op": "add", "path": "/spec/affinity", "value": aim}], kind="json"), "affinity")),
        ("nobody's fields", lambda: _managed(
            api.patch(f"{path}/p", {"metadata": {"managedFields": [{}], "labels": {"b": "c"}}}))),
        ("metadata alone of one", lambda: _parts(
            [api.patch(f"{path}/p", {"metadata": {"labels": {"b": "d"}}}, bare=True)])),
        ("metadata alone of all", lambda: _parts(api.items(path, labels="gangline/gang=p", bare=True)[0])),
        ("the gate goes", lambda: patched({"op": "remove", "path": "/spec/schedulingGates"})),
        ("a selector without a gate", lambda: patched({"op": "add", "path": "/spec/nodeSelector/a", "value": "b"})),
        ("no node without a gate", lambda: patched({"op": "remove", "path": "/spec/affinity"})),
        ("another command", lambda: patched({"op": "add", "path": "/spec/containers/0/command", "value": ["x"]})),
        ("delete a pod that no node has", lambda: api.delete(f"{path}/p", grace_seconds=0)),
        ("it is gone at once", lambda: api.get(f"{path}/p")),
    ]  # fmt: skip


def _answer(api: KubernetesClient, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except GanglineError as error:
        return type(error).__name__, _plain(str(error).replace(api.namespace, "NAMESPACE"))


def _plain(text: str) -> str:
    """Without what two servers may say differently: uids, values in quotes that only one repeats."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", text)
    text = re.sub(
        r"patch: Invalid value: .*: strict decoding error", "patch: Invalid value: strict decoding error", text
    )
    for known in (
        "spec: Forbidden: pod updates may not change fields",
        "spec.template: Invalid value",
        "unknown field",
    ):
        if known in text:
            return text[: text.index(known) + len(known)]
    for known in ("cannot be handled as a", "unable to parse", "known field selector", "Precondition failed"):
        if known in text:
            return f"{text.partition(': ')[0]}: … {known} …"
    return text.replace("404 page not found", "the server could not find the requested resource")


def _watched(api: KubernetesClient, path: str, labels: str = "") -> list[tuple[str, str]]:
    version = api.items(path)[1]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w", "labels": {"a": "w"}}}
    api.create(path, body)
    api.patch(f"{path}/w", {"data": {"x": "1"}})
    api.patch(f"{path}/w", {"metadata": {"labels": {"a": "v"}}})
    api.delete(f"{path}/w")
    events = api.watch(path, labels=labels, resource_version=version, seconds=1.0)
    return [(each.kind, each.object["metadata"]["name"]) for each in events if each.kind != "bookmark"]


def _late(call: Callable[[], Any]) -> Any:
    """A Job's template is fixed once it has a start time, which its controller writes."""
    time.sleep(1.0)
    return call()


def _await(api: KubernetesClient, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60.0
    while not holds():
        for each in getattr(api, "idle", ()):
            each()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _names(found: list[dict[str, Any]]) -> list[str]:
    names = [each["metadata"]["name"] for each in found]
    return [name for name in names if name != "kube-root-ca.crt"]


def _data(body: dict[str, Any] | None) -> Any:
    return None if body is None else body.get("data")


def _labels(body: dict[str, Any] | None) -> Any:
    return None if body is None else body["metadata"].get("labels")


def _status(body: dict[str, Any] | None) -> Any:
    return None if body is None else body["status"].get("active")


def _spec(body: dict[str, Any] | None, name: str) -> Any:
    return None if body is None else body["spec"].get(name)


def _managed(body: dict[str, Any] | None) -> Any:
    return None if body is None else body["metadata"].get("managedFields")


def _parts(found: list[Any]) -> Any:
    """Which parts of objects are there."""
    return [sorted(each.keys() & {"metadata", "spec", "status"}) for each in found]


def _condition(body: dict[str, Any] | None, kind: str) -> Any:
    conditions = (body or {}).get("status", {}).get("conditions", ())
    return [(each["status"], each.get("reason")) for each in conditions if each["type"] == kind]
