"""With whose end the gangs of a pipeline go: the Workflow that made this task's pod, never the pod itself.

A pod is evicted and its training goes on; a Workflow that is deleted takes its gangs along. An owner of another
namespace counts as gone on a cluster, so there is none where gangs have a namespace of their own, and nobody asks: the
account of a task may read its pod where that pod is, and there alone.
"""

from collections.abc import Mapping

from gangline.launch.kubernetes.api.protocol import Api, Denied, Object

POD_NAME, POD_UID = "KFP_POD_NAME", "KFP_POD_UID"
"""What the pipelines server tells a task about its pod; a task of the local runner has none."""
OWNING = "Workflow"


def find_workflow(api: Api, environ: Mapping[str, str], *, here: str | None) -> Object | None:
    """The Workflow of this process's pod, as an owner; None outside the namespace of the gangs.

    Args:
        api: Of the namespace of the gangs.
        environ: Of a task.
        here: Namespace of its pod; None: not known.
    """
    pod = _own_pod(api, environ) if here in (None, api.namespace) else None
    if pod is None or pod["metadata"]["uid"] != environ.get(POD_UID, pod["metadata"]["uid"]):
        return None
    owners = (each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller"))
    return next((_as_object(each) for each in owners if each["kind"] == OWNING), None)


def _own_pod(api: Api, environ: Mapping[str, str]) -> Object | None:
    """None, too, where its account may not read it: gangs without an owner end by `cancel`, deadline and sweep."""
    name = environ.get(POD_NAME)
    try:
        return api.get(f"/api/v1/namespaces/{api.namespace}/pods/{name}") if name else None
    except Denied:
        return None


def _as_object(reference: Object) -> Object:
    """A pod says all of its owner that a reference needs, so nobody needs rights to read Workflows."""
    named = {"name": reference["name"], "uid": reference["uid"]}
    return {"apiVersion": reference["apiVersion"], "kind": reference["kind"], "metadata": named}
