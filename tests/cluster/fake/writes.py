"""What a write makes of an object before it is stored: identity, status, what may not change."""

import json
import random
import string
import uuid
from copy import deepcopy
from datetime import datetime
from typing import Any

from tests.cluster.fake.kinds import Kind
from tests.cluster.fake.refusal import bad, invalid, modified

Object = dict[str, Any]
_OURS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
"""Metadata that the server decides."""


def born(kind: Kind, body: Object, *, namespace: str, now: datetime) -> Object:
    """`body` as it is created."""
    new = deepcopy(body)
    metadata = new["metadata"]
    for name in _OURS:
        metadata.pop(name, None)
    if "name" not in metadata:
        metadata["name"] = metadata["generateName"] + "".join(random.choices(string.ascii_lowercase, k=5))
    if namespace:
        metadata["namespace"] = namespace
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = stamp(now)
    if kind.has_generation:
        metadata["generation"] = 1
    if kind.has_status:
        new["status"] = {}
    if kind.kind == "Pod":
        new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        new["spec"].setdefault("restartPolicy", "Always")
        _mark_gated(new)
    if kind.kind == "Namespace":
        new["status"] = {"phase": "Active"}
    return new


def changed(kind: Kind, before: Object, after: Object, *, subresource: str, is_patch: bool) -> Object:
    """`after` as an update of `before` is stored; raises what the server refuses."""
    new = deepcopy(after)
    _check_identity(kind, before, new, is_patch=is_patch)
    for name in (*_OURS, "namespace", "name"):
        if name in before["metadata"]:
            new["metadata"][name] = before["metadata"][name]
    if subresource == "status":
        _check_status(kind, before, new)
        return {**deepcopy(before), "status": new.get("status", {}), "metadata": new["metadata"]}
    if kind.has_status:
        new["status"] = deepcopy(before.get("status", {}))
    _check_spec(kind, before, new)
    if kind.has_generation and new.get("spec") != before.get("spec"):
        new["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
    if kind.kind == "Pod":
        _mark_gated(new)
    if new["metadata"].get("managedFields") == [{}]:  # this server keeps none anyway
        del new["metadata"]["managedFields"]
    return new


def stamp(now: datetime) -> str:
    return f"{now:%Y-%m-%dT%H:%M:%SZ}"


def _check_identity(kind: Kind, before: Object, new: Object, *, is_patch: bool) -> None:
    old, metadata = before["metadata"], new["metadata"]
    if metadata.get("name", old["name"]) != old["name"]:
        raise bad(f"the name of the object ({metadata['name']}) does not match the name on the URL ({old['name']})")
    if metadata.get("resourceVersion") not in (None, "", old["resourceVersion"]):
        raise modified(kind.resource, old["name"])
    if metadata.get("uid") in (None, old["uid"]):
        return
    if is_patch:
        why = f'metadata.uid: Invalid value: "{metadata["uid"]}": field is immutable'
        raise invalid(kind.qualified, old["name"], why)
    why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old['uid']}"
    raise modified(kind.resource, old["name"], why)


def _check_spec(kind: Kind, before: Object, new: Object) -> None:
    name = before["metadata"]["name"]
    if kind.kind == "Pod":
        _check_gates(before, new)
        is_gated = bool(before["spec"].get("schedulingGates"))
        may_aim = (
            is_gated and "affinity" not in before["spec"] and [*new["spec"].get("affinity", ())] == ["nodeAffinity"]
        )
        loose = {"nodeSelector"} if is_gated else set()
        loose |= {"affinity"} if may_aim else set()
        if _fixed_of_pod(before, loose) != _fixed_of_pod(new, loose):
            why = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
            raise invalid("Pod", name, why)
    if kind.kind == "Job" and not _may_change_template(before) and _template(before) != _template(new):
        raise invalid("Job.batch", name, "spec.template: Invalid value: field is immutable")
    if kind.kind == "Secret" and before.get("immutable") and before.get("data") != new.get("data"):
        raise invalid("Secret", name, "data: Forbidden: field is immutable when `immutable` is set")


def _check_status(kind: Kind, before: Object, new: Object) -> None:
    """The start of a Job is a matter of its controller, unless it is suspended."""
    if kind.kind != "Job" or before["spec"].get("suspend"):
        return
    started = before.get("status", {}).get("startTime")
    if started and not new.get("status", {}).get("startTime"):
        why = "status.startTime: Required value: startTime cannot be removed for unsuspended job"
        raise invalid("Job.batch", before["metadata"]["name"], why)


def _fixed_of_pod(body: Object, loose: set[str]) -> Object:
    """What no update changes, but for what is `loose`."""
    loose = loose | {"schedulingGates", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
    spec = {name: value for name, value in body["spec"].items() if name not in loose and name != "nodeName"}
    spec["containers"] = [{**each, "image": ""} for each in spec.get("containers", [])]
    return spec


def _check_gates(before: Object, new: Object) -> None:
    name = before["metadata"]["name"]
    old_gates = {each["name"] for each in before["spec"].get("schedulingGates") or ()}
    new_gates = {each["name"] for each in new["spec"].get("schedulingGates") or ()}
    if not new_gates <= old_gates:
        added = sorted(new_gates - old_gates)[0]
        why = f"Forbidden: only deletion is allowed, but found new scheduling gate '{added}'"
        raise invalid("Pod", name, f"spec.schedulingGates[{len(old_gates)}].name: {why}")
    old, selector = before["spec"].get("nodeSelector") or {}, new["spec"].get("nodeSelector") or {}
    if old_gates and not old.items() <= selector.items():
        shown = json.dumps(selector, separators=(",", ":"), sort_keys=True)
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        raise invalid("Pod", name, f"spec.nodeSelector: Invalid value: {shown}: {why}")


def _mark_gated(pod: Object) -> None:
    status = pod["status"]
    rest = [each for each in status.get("conditions", []) if each.get("reason") != "SchedulingGated"]
    if pod["spec"].get("schedulingGates"):
        rest.append(
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        )
    if rest or "conditions" in status:
        status["conditions"] = rest


def _may_change_template(job: Object) -> bool:
    return bool(job["spec"].get("suspend")) and not job.get("status", {}).get("startTime")


def _template(job: Object) -> Any:
    return job["spec"]["template"]
