"""PodGroup by which Volcano starts a gang whole; its pods name it, and Volcano as their scheduler.

Field names are those of Volcano 1.15 (volcano.sh/apis, scheduling/v1beta1). Volcano binds pods in any order: it keeps
tiles together, but no order of ranks. Without its plugin `network-topology-aware` it ignores tiles in silence.
"""

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import VOLCANO_VERSION, VolcanoFacts
from gangline.launch.kubernetes.objects.labels import GANG, INDEX
from gangline.launch.kubernetes.objects.pod import requests
from gangline.launch.kubernetes.objects.render_context import RenderContext, metadata
from gangline.spec.gang.podset import PodSet

_DEFAULT_QUEUE = "default"
"""Volcano creates it, and takes it for a PodGroup that names none."""
_GROUP_TIER = 1
"""Tier of the HyperNodes of groups, the servers on the same leaf switches."""
_ONE_GROUP = {"mode": "hard", "highestTierAllowed": _GROUP_TIER}


def pod_group(context: RenderContext) -> Object:
    """The PodGroup of a gang.

    Raises:
        ConfigError: This Volcano has no such queue, no HyperNodes for the gang's tiles, or no field that names them.
    """
    podset = context.podset
    facts = context.facts.volcano or VolcanoFacts()
    spec: Object = {
        "minMember": podset.num_nodes,
        "minResources": requests(context, num_pods=podset.num_nodes),
        "queue": _queue(podset.queue or context.launch.queue or _DEFAULT_QUEUE, facts),
    }
    if context.priority_class is not None:
        spec["priorityClassName"] = context.priority_class
    spec |= _tiles(podset, facts)
    return {"apiVersion": VOLCANO_VERSION, "kind": "PodGroup", "metadata": metadata(context), "spec": spec}


def _queue(wanted: str, facts: VolcanoFacts) -> str:
    if facts.queues is not None and wanted not in facts.queues:
        raise ConfigError(
            f"launch.queue: wanted an open queue {wanted} of Volcano, found {', '.join(facts.queues) or 'none at all'};"
            " its controller opens one that is new"
        )
    return wanted


def _tiles(podset: PodSet, facts: VolcanoFacts) -> Object:
    """Fields that keep each tile in one group; empty for tiles of one pod, which may run anywhere."""
    if podset.tile == 1:
        return {}
    field = "networkTopology" if podset.tile == podset.num_nodes else "subGroupPolicy"
    if field not in facts.fields:
        raise ConfigError(
            f'gang {podset.name}: wanted {podset.tile} pods in one group each by launch.route "volcano", found'
            f' PodGroups without {field}; Volcano 1.14 has it, and "gates" works without it'
        )
    if facts.tiers is not None and _GROUP_TIER not in facts.tiers:
        known = ", ".join(map(str, facts.tiers)) or "none at all"
        raise ConfigError(
            f"gang {podset.name}: wanted HyperNodes of tier {_GROUP_TIER} for its {podset.tile} pods in one group each,"
            f' found tiers {known}; create one a group, or use launch.route "gates", which reads the labels of nodes'
        )
    if field == "networkTopology":
        return {field: dict(_ONE_GROUP)}
    starts = range(0, podset.num_nodes, podset.tile)
    tiles = [range(start, min(start + podset.tile, podset.num_nodes)) for start in starts]
    return {field: [_tile(number, ranks) for number, ranks in enumerate(tiles)]}


def _tile(number: int, node_ranks: range) -> Object:
    """Policy of one tile. Volcano ignores one without `matchLabelKeys`; all pods of a gang have one value there."""
    return {
        "name": f"tile-{number}",
        "labelSelector": {
            "matchExpressions": [{"key": INDEX, "operator": "In", "values": [str(rank) for rank in node_ranks]}]
        },
        "matchLabelKeys": [GANG],
        "subGroupSize": len(node_ranks),
        "minSubGroups": 1,
        "networkTopology": dict(_ONE_GROUP),
    }
