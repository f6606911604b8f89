"""Nodes and pods as a server gives them, as short as tests like them."""


def node(name, *, cpu="8", memory="32Gi", labels=None, taints=(), unschedulable=False, annotations=None, **devices):
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", **devices}
    spec = {"taints": list(taints)} | ({"unschedulable": True} if unschedulable else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": spec,
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def pod(name, *, on=None, namespace="gangs", labels=None, owner=None, phase="Running", **requests):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "x", "uid": "x", "apiVersion": "v1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "node", "resources": {"requests": requests}}]}
        | ({"nodeName": on} if on else {}),
        "status": {"phase": phase},
    }


class Cluster:
    """`KubernetesApi.items` over fixed lists; a list that is missing may not be read."""

    namespace = "gangs"

    def __init__(self, **lists):
        self.lists = lists

    def items(self, path, *, labels="", fields="", bare=False):
        from gangline.launch.kubernetes.client.api import ApiForbidden

        kind = path.rsplit("/", 1)[1]
        if kind not in self.lists:
            raise ApiForbidden(f"list {kind}: forbidden")
        return list(self.lists[kind]), "1"
