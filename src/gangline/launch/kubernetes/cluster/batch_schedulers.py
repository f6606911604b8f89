"""Facts about schedulers that take a whole gang: Volcano and KAI, their queues and what they know of the network.

Queues and topologies belong to the whole cluster; an account that may not list them does not know them, and a gang is
then refused, if at all, by the scheduler.
"""

from dataclasses import dataclass
from typing import Any

from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.cluster.rights import HYPERNODES, KAI, KAI_TOPOLOGIES, VOLCANO

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


def read_volcano(api: KubernetesApi, served: tuple[str, ...]) -> VolcanoFacts | None:
    """None: the cluster serves no PodGroups of Volcano. Raises `ApiUnavailable`."""
    if f"{VOLCANO_VERSION}/podgroups" not in served:
        return None
    queues = _listed(api, queues_path())
    hypernodes = _listed(api, f"/apis/{HYPERNODES}/v1alpha1/hypernodes")
    return VolcanoFacts(
        queues=None if queues is None else tuple(sorted(_name(each) for each in queues if _is_open(each))),
        tiers=None if hypernodes is None else tuple(sorted({int(_spec(each).get("tier", 0)) for each in hypernodes})),
        fields=_spec_fields(api, VOLCANO_VERSION, "PodGroup"),
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
        topologies=None if topologies is None else {_name(each): topology_levels(each) for each in topologies},
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


def _spec_fields(api: KubernetesApi, group_version: str, kind: str) -> tuple[str, ...]:
    document = api.read(f"/openapi/v3/apis/{group_version}") or {}
    schemas = (document.get("components") or {}).get("schemas") or {}
    for schema in schemas.values():
        if any(each.get("kind") == kind for each in schema.get("x-kubernetes-group-version-kind") or ()):
            spec = (schema.get("properties") or {}).get("spec") or {}
            return tuple(sorted(spec.get("properties") or {}))
    return ()


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
