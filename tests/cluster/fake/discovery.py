"""What a server says of itself: version, groups, schemas; only what `facts` reads of them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.fake.refusal import not_served

if TYPE_CHECKING:
    from tests.cluster.fake.server import Asked, FakeServer

Object = dict[str, Any]
CRDS = Path(__file__).parents[2] / "launch" / "kubernetes" / "crds" / "schemas"
_WISHES = {
    "podSpecOverrides": {"podSpecOverrides": {"type": "array"}},
    "podTemplateOverrides": {"podTemplateOverrides": {"type": "array"}},
    "runtimePatches": {"runtimePatches": {"type": "array"}},
}


def answer(server: "FakeServer", asked: "Asked") -> tuple[int, Object]:
    path = asked.path.rstrip("/")
    if path == "/version":
        return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}
    roots = {kind.root for kind in server.kinds}
    if path == "/openapi/v3":
        return 200, {"paths": {root.strip("/"): {"serverRelativeURL": f"/openapi/v3{root}"} for root in sorted(roots)}}
    if path in roots:
        return 200, _resources(server, path)
    if path == "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1" and path.removeprefix("/openapi/v3") in roots:
        return 200, _trainer(server.trainer)
    if path == "/openapi/v3/apis/scheduling.volcano.sh/v1beta1" and path.removeprefix("/openapi/v3") in roots:
        return 200, _volcano()
    raise not_served()


def _resources(server: "FakeServer", root: str) -> Object:
    served = [kind for kind in server.kinds if kind.root == root]
    return {
        "kind": "APIResourceList",
        "groupVersion": served[0].api_version,
        "resources": [{"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced} for kind in served],
    }


def _volcano() -> Object:
    """The schema of the release that the golden objects are checked against."""
    schemas = json.loads((CRDS / "volcano-1.15.1.json").read_text("utf-8"))
    group = schemas["PodGroup"] | {"x-kubernetes-group-version-kind": [{"kind": "PodGroup"}]}
    return {"components": {"schemas": {"sh.volcano.scheduling.v1beta1.PodGroup": group}}}


def _trainer(spelling: str) -> Object:
    count: Object = {"type": "integer"} if spelling == "runtimePatches" else {"x-kubernetes-int-or-string": True}
    trainer = {"properties": {"numNodes": {"type": "integer"}, "numProcPerNode": count}}
    spec = {"properties": {"runtimeRef": {"type": "object"}, "trainer": trainer, **_WISHES[spelling]}}
    job = {"properties": {"spec": spec}, "x-kubernetes-group-version-kind": [{"kind": "TrainJob"}]}
    return {"components": {"schemas": {"org.kubeflow.trainer.v1alpha1.TrainJob": job}}}
