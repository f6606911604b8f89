"""Labels and annotations by which Kueue queues a gang and places it. Kueue alone suspends and unsuspends such a gang.

Kueue takes counts only: so many consecutive pods in one domain. `placement.kueue_admission` reads which pod goes
where.
"""

from dataclasses import dataclass, field

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.cluster.rights import KUEUE
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Placement, PodSet

GROUP = KUEUE
QUEUE_NAME = f"{GROUP}/queue-name"
REQUIRED = f"{GROUP}/podset-required-topology"
PREFERRED = f"{GROUP}/podset-preferred-topology"
SLICE_REQUIRED = f"{GROUP}/podset-slice-required-topology"
SLICE_SIZE = f"{GROUP}/podset-slice-size"


@dataclass(frozen=True, kw_only=True, slots=True)
class KueueMetadata:
    root_labels: dict[str, str]
    """Written last: they put the root into its queue."""
    pod_annotations: dict[str, str] = field(default_factory=dict)
    """Of the pod template."""


def kueue_metadata(
    podset: PodSet, placement: Placement | None, launch: LaunchTable, facts: ClusterFacts
) -> KueueMetadata:
    """What Kueue is told of a gang.

    Priority goes by the pods' own class, so that no class of Kueue's needs to exist.

    Args:
        podset: Its queue goes before the site's.
        wish: Its `labels` name the topology level that consecutive pods should share, its `tile` how many of them must.
        launch: The site's queue.
        facts: Queues of the namespace; topologies of the cluster.

    Raises:
        ConfigError: There is no such queue, or none is named and there are several.
    """
    labels = {QUEUE_NAME: choose_queue(podset.queue or launch.queue, facts)}
    return KueueMetadata(root_labels=labels, pod_annotations=_topology(podset, placement) if facts.topologies else {})


def choose_queue(wanted: str | None, facts: ClusterFacts) -> str:
    """The queue to wait in: the one that is wanted, else the only one."""
    known = ", ".join(sorted(facts.queues)) or "none at all"
    if wanted is None and len(facts.queues) == 1:
        return next(iter(facts.queues))
    if wanted is None:
        raise ConfigError(f"launch.queue: wanted the name of a queue, found none; this namespace has {known}")
    if wanted not in facts.queues:
        raise ConfigError(f"launch.queue: wanted a LocalQueue {wanted}, found no such one; this namespace has {known}")
    return wanted


def _topology(podset: PodSet, placement: Placement | None) -> dict[str, str]:
    """Nothing where nothing is wished for: any such annotation bars every flavor without a topology, and a queue whose
    flavors all have one assigns servers unasked."""
    if placement is None or not placement.labels or podset.num_nodes == 1:
        return {}
    level, tile = placement.labels[0], placement.tile
    if tile == podset.num_nodes:
        return {REQUIRED: level}
    if tile > 1:
        _demand_divides(podset, tile)
        return {PREFERRED: level, SLICE_REQUIRED: level, SLICE_SIZE: str(tile)}
    return {PREFERRED: level}


def _demand_divides(podset: PodSet, tile: int) -> None:
    if podset.num_nodes % tile:
        raise ConfigError(f"gang {podset.name}: wanted a tile that divides {podset.num_nodes} pods, found {tile}")
