"""Facts about a cluster that rendering and routing depend on; read once per driver, or from a file.

Read from discovery and from published schemas, which are open to every account; a fact that needs a right which this
account lacks stays empty, which always is the modest answer. Queues of Volcano and KAI that are not known refuse no
gang; if at all, its scheduler does.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.rights import (
    DRIVER,
    HYPERNODES,
    JOBSET,
    KAI,
    KAI_TOPOLOGIES,
    KUEUE,
    OPTIONAL_GROUPS,
    TRAINER,
    VOLCANO,
    Right,
    is_granted,
    single,
)
from gangline.spec.codec import Document

VOLCANO_VERSION = f"{VOLCANO}/v1beta1"
_KAI_VERSION = f"{KAI}/v2"


@dataclass(frozen=True, kw_only=True, slots=True)
class VolcanoFacts:
    """What Volcano has."""

    queues: tuple[str, ...] | None = None
    """Open queues; None: not known."""
    tiers: tuple[int, ...] | None = None
    """Tiers of its HyperNodes; 1 is the narrowest. None: not known."""
    fields: tuple[str, ...] = ()
    """Fields of the spec of a PodGroup; its API server drops all others without a word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KaiFacts:
    """What KAI has."""

    queues: tuple[str, ...] | None = None
    """Queues without queues below them, and none missing above; None: not known."""
    topologies: dict[str, tuple[str, ...]] | None = None
    """Topology to its levels as node labels, widest first; None: not known."""


TrainerSpelling = Literal["podSpecOverrides", "podTemplateOverrides", "runtimePatches"]
"""Field of a TrainJob that overrides its pods: Trainer 2.0, 2.1, 2.2 and later."""

PLACER_LEASE = "gangline-placer"
_SPELLINGS: tuple[TrainerSpelling, ...] = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
_GROUPS = ("batch", JOBSET, KUEUE, "networking.k8s.io", TRAINER, VOLCANO, HYPERNODES, KAI, KAI_TOPOLOGIES)
"""API groups that gangline depends on, in addition to the core."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterFacts(Document):
    """Facts about a cluster that rendering and routing read; `gangline render` takes them from a file."""

    schema: int = 1
    version: str = ""
    """Version of the server, `1.34`."""
    served: tuple[str, ...] = ()
    """Resources by `group/version/plural`, core ones as `v1/pods`."""
    trainer: TrainerSpelling | None = None
    """None: no TrainJob is served."""
    trainer_num_proc_is_integer: bool = False
    topologies: tuple[str, ...] = ()
    """Kueue's Topology objects; some: route B."""
    queues: dict[str, str] = field(default_factory=dict)
    """LocalQueue of the namespace to its ClusterQueue."""
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """LocalQueue to the topology levels that each of its flavors has, as node labels, widest first; a queue is missing
    if a flavor has no topology, or if this account may not read the flavors."""
    volcano: VolcanoFacts | None = None
    """None: the cluster has no Volcano."""
    kai: KaiFacts | None = None
    """None: the cluster has no KAI."""
    placer: bool = False
    """A placer holds its Lease."""
    priority_classes: tuple[str, ...] = ()
    """Names of the cluster's PriorityClasses; only these are asked for."""
    api_addresses: tuple[str, ...] = ()
    """Addresses of the API server that pods see; a gang reaches none of them, whatever its store's address."""

    @property
    def kueue(self) -> bool:
        """Whether the cluster serves Kueue."""
        return any(each.startswith(f"{KUEUE}/") for each in self.served)

    @property
    def jobset(self) -> bool:
        """Whether the cluster serves JobSet."""
        return any(each.startswith(f"{JOBSET}/") for each in self.served)


def read_facts(api: KubernetesApi, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> ClusterFacts:
    """Read the facts with about a dozen calls. Raises `ApiUnavailable`."""
    version = api.read("/version") or {}
    roots = _roots(api)
    served = tuple(sorted(name for root in roots for name in _resources(api, root)))
    spelling, is_integer = _trainer(api, roots)
    topologies = _kueue_items(api, served, "topologies")
    local_queues = _kueue_items(api, served, "localqueues", api.namespace)
    queues = {_name(local_queue): str(_spec(local_queue).get("clusterQueue", "")) for local_queue in local_queues}
    return ClusterFacts(
        version=f"{version.get('major', '')}.{version.get('minor', '')}".rstrip("+"),
        served=served,
        trainer=spelling,
        trainer_num_proc_is_integer=is_integer,
        topologies=tuple(sorted(map(_name, topologies))),
        queues=queues,
        levels=_levels(api, served, queues, topologies),
        volcano=read_volcano(api, served),
        kai=read_kai(api, served),
        placer=_is_placed(api, now()),
        priority_classes=_priority_classes(api),
        api_addresses=_api_addresses(api),
    )


def missing_rights(api: KubernetesApi, *, wanted: Iterable[Right] = DRIVER) -> list[str]:
    """Rights of `wanted` that this account lacks in the namespace of `api`, as `create jobs.batch`; two or three calls.

    Rights on kinds that the cluster does not serve are left out.
    """
    served = {path.split("/")[1] for path in _openapi_paths(api) if path.startswith("apis/")}
    review = api.create(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        _review("SelfSubjectRulesReview", {"namespace": api.namespace}),
    )
    rules = review["status"].get("resourceRules") or []
    return [
        f"{verb} {right.what}{f' {name}' if name else ''}"
        for right, verb, name in single(wanted)
        if (right.group not in OPTIONAL_GROUPS or right.group in served)
        and not is_granted(right, verb, name, rules)
        and not (review["status"].get("incomplete") and _is_allowed(api, right, verb, name, namespace=api.namespace))
    ]


def missing_in_cluster(api: KubernetesApi, *, wanted: Iterable[Right]) -> list[str]:
    """Rights of `wanted` that this account lacks in the whole cluster, as `list nodes`; one call per verb."""
    return [
        f"{verb} {right.what} of the cluster"
        for right, verb, name in single(wanted)
        if not _is_allowed(api, right, verb, name, namespace="")
    ]


def _is_allowed(api: KubernetesApi, right: Right, verb: str, name: str, *, namespace: str) -> bool:
    """An access review of one right, for other authorizers and for the whole cluster (`namespace` empty)."""
    resource, _, below = right.resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": right.group, "resource": resource}
    asked |= ({"subresource": below} if below else {}) | ({"name": name} if name else {})
    body = _review("SelfSubjectAccessReview", {"resourceAttributes": asked})
    answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(answer["status"].get("allowed"))


def read_volcano(api: KubernetesApi, served: tuple[str, ...]) -> VolcanoFacts | None:
    """None: the cluster serves no PodGroups of Volcano. Raises `ApiUnavailable`."""
    if f"{VOLCANO_VERSION}/podgroups" not in served:
        return None
    queues = _listed(api, queues_path())
    hypernodes = _listed(api, f"/apis/{HYPERNODES}/v1alpha1/hypernodes")
    return VolcanoFacts(
        queues=None if queues is None else tuple(sorted(_name(each) for each in queues if _is_open(each))),
        tiers=None
        if hypernodes is None
        else tuple(sorted({int(_spec(hypernode).get("tier", 0)) for hypernode in hypernodes})),
        fields=tuple(sorted(_spec_schema(api, f"/apis/{VOLCANO_VERSION}", "PodGroup"))),
    )


def queues_path() -> str:
    """Path of the queues of Volcano, which belong to the whole cluster."""
    return f"/apis/{VOLCANO_VERSION}/queues"


def read_kai(api: KubernetesApi, served: tuple[str, ...]) -> KaiFacts | None:
    """None: the cluster serves no queues of KAI. Raises `ApiUnavailable`."""
    if f"{_KAI_VERSION}/queues" not in served:
        return None
    queues = _listed(api, f"/apis/{_KAI_VERSION}/queues")
    topologies = _listed(api, f"/apis/{KAI_TOPOLOGIES}/v1alpha1/topologies")
    return KaiFacts(
        queues=None if queues is None else _leaves({_name(each): _spec(each).get("parentQueue") for each in queues}),
        topologies=None
        if topologies is None
        else {_name(topology): topology_levels(topology) for topology in topologies},
    )


def _is_open(queue: Object) -> bool:
    """Whether Volcano lets gangs in; `root` is above all queues, and its controller opens one that has no state yet."""
    return _name(queue) != "root" and (queue.get("status") or {}).get("state") == "Open"


def _leaves(parents: dict[str, str | None]) -> tuple[str, ...]:
    """Queues of KAI that take gangs: it ignores those one of whose parents is missing."""
    whole: set[str | None] = {None, ""}
    for _ in parents:
        whole |= {name for name, parent in parents.items() if parent in whole}
    return tuple(sorted(name for name in set(parents) - set(parents.values()) if name in whole))


def topology_levels(topology: Object) -> tuple[str, ...]:
    """Node labels of a `Topology` of KAI or Kueue, the widest first."""
    return tuple(str(each.get("nodeLabel")) for each in _spec(topology).get("levels") or ())


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])


def _spec(found: Object) -> Any:
    return found.get("spec") or {}


def _listed(api: KubernetesApi, path: str) -> list[Object] | None:
    """None: this account may not list them, or they are not served."""
    try:
        return api.items(path)[0]
    except ApiForbidden:
        return None


def _review(kind: str, spec: Object) -> Object:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


def _openapi_paths(api: KubernetesApi) -> list[str]:
    return list((api.read("/openapi/v3") or {}).get("paths", {}))


def _roots(api: KubernetesApi) -> list[str]:
    """Paths below which the groups that matter are served: `/api/v1`, `/apis/batch/v1`."""
    groups = [path for path in _openapi_paths(api) if path.count("/") == 2 and path.split("/")[1] in _GROUPS]
    return [f"/{path}" for path in ("api/v1", *sorted(groups))]


def _resources(api: KubernetesApi, root: str) -> Iterable[str]:
    prefix = root.removeprefix("/apis/").removeprefix("/api/")
    for each in (api.read(root) or {}).get("resources", ()):
        if "/" not in each["name"]:
            yield f"{prefix}/{each['name']}"


def _trainer(api: KubernetesApi, roots: list[str]) -> tuple[TrainerSpelling | None, bool]:
    """Spelling of overrides, and whether `numProcPerNode` is an integer, from the schema of TrainJob."""
    root = next((each for each in roots if each.startswith(f"/apis/{TRAINER}/")), None)
    spec = _spec_schema(api, root, "TrainJob") if root is not None else {}
    count = _properties(spec.get("trainer", {})).get("numProcPerNode", {})
    return next((each for each in _SPELLINGS if each in spec), None), count.get("type") == "integer"


def _spec_schema(api: KubernetesApi, root: str, kind: str) -> Any:
    """Fields of `spec` of a kind, by their names, from the published schema of its group; empty: it is not there."""
    document = api.read(f"/openapi/v3{root}") or {}
    for schema in ((document.get("components") or {}).get("schemas") or {}).values():
        if any(each.get("kind") == kind for each in schema.get("x-kubernetes-group-version-kind") or ()):
            return _properties(_properties(schema).get("spec") or {})
    return {}


def _properties(schema: Object) -> Any:
    return schema.get("properties") or {}


def _kueue_path(served: tuple[str, ...], plural: str, namespace: str = "") -> str | None:
    """Path of a collection of Kueue; None: it is not served."""
    found = next((each for each in served if each.startswith("kueue.") and each.endswith(f"/{plural}")), None)
    if found is None:
        return None
    return f"/apis/{found.rpartition('/')[0]}/{f'namespaces/{namespace}/' if namespace else ''}{plural}"


def _kueue_items(api: KubernetesApi, served: tuple[str, ...], plural: str, namespace: str = "") -> list[Object]:
    path = _kueue_path(served, plural, namespace)
    return (_listed(api, path) or []) if path else []


def _kueue_spec(api: KubernetesApi, served: tuple[str, ...], plural: str, name: str) -> Any:
    """`spec` of one object of the whole cluster; empty if it cannot be read."""
    path = _kueue_path(served, plural)
    return _spec(_got(api, f"{path}/{name}")) if path else {}


def _levels(
    api: KubernetesApi, served: tuple[str, ...], queues: Mapping[str, str], topologies: Iterable[Object]
) -> dict[str, tuple[str, ...]]:
    """Topology levels of each queue; two or three calls for each ClusterQueue, none without a Topology."""
    known = {_name(topology): topology_levels(topology) for topology in topologies}
    of_cluster_queue = {
        name: _common_levels(api, served, name, known) for name in sorted(set(queues.values())) if name and known
    }
    found = {queue: of_cluster_queue.get(name, ()) for queue, name in queues.items()}
    return {queue: levels for queue, levels in found.items() if levels}


def _common_levels(
    api: KubernetesApi, served: tuple[str, ...], cluster_queue: str, known: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    groups = _kueue_spec(api, served, "clusterqueues", cluster_queue).get("resourceGroups") or ()
    flavors = {str(flavor.get("name")) for group in groups for flavor in group.get("flavors") or ()}
    specs = [_kueue_spec(api, served, "resourceflavors", name) for name in sorted(flavors)]
    levels = [known.get(str(spec.get("topologyName")), ()) for spec in specs]
    return tuple(level for level in levels[0] if all(level in each for each in levels)) if levels else ()


def _is_placed(api: KubernetesApi, now: datetime) -> bool:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases/{PLACER_LEASE}"
    spec = _spec(_got(api, path))
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return False
    renewed = datetime.fromisoformat(spec["renewTime"].replace("Z", "+00:00"))
    return now < renewed + timedelta(seconds=spec.get("leaseDurationSeconds", 0))


def _priority_classes(api: KubernetesApi) -> tuple[str, ...]:
    return tuple(sorted(map(_name, _listed(api, "/apis/scheduling.k8s.io/v1/priorityclasses") or ())))


def _api_addresses(api: KubernetesApi) -> tuple[str, ...]:
    """Addresses of the Service and of its endpoints: names resolve to the first, policies match the second."""
    service = _got(api, "/api/v1/namespaces/default/services/kubernetes")
    slices = _got(api, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
    behind = [address for each in slices.get("endpoints") or () for address in each.get("addresses", ())]
    return tuple(sorted({*(_spec(service).get("clusterIPs") or ()), *behind}))


def _got(api: KubernetesApi, path: str) -> Object:
    """The object; empty if it does not exist or this account may not read it."""
    try:
        return api.get(path) or {}
    except ApiForbidden:
        return {}
