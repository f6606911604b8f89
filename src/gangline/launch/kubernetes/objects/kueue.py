"""Labels and annotations with which Kueue queues and places a gang. Only Kueue suspends and resumes such a gang.

Kueue takes counts only: so many consecutive pods in one domain. `placement.kueue_admission` reads which pod goes
where.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.cluster.rights import KUEUE
from gangline.launch.kubernetes.objects.labels import HOSTNAME
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import PodSet

GROUP = KUEUE
QUEUE_NAME = f"{GROUP}/queue-name"
_REQUIRED = f"{GROUP}/podset-required-topology"
_PREFERRED = f"{GROUP}/podset-preferred-topology"
_SLICE_REQUIRED = f"{GROUP}/podset-slice-required-topology"
_SLICE_SIZE = f"{GROUP}/podset-slice-size"


@dataclass(frozen=True, kw_only=True, slots=True)
class KueueMetadata:
    """What Kueue reads from a gang's objects."""

    root_labels: dict[str, str]
    """Written last, as they put the root into its queue."""
    pod_annotations: dict[str, str] = field(default_factory=dict)
    """Annotations of the pod template."""


def kueue_metadata(podset: PodSet, launch: LaunchTable, facts: ClusterFacts) -> KueueMetadata:
    """Queue label and topology annotations of a gang.

    Priority comes from the PriorityClass of the pods, so no WorkloadPriorityClass is needed.

    Args:
        podset: Its queue overrides the site's; `tile` of its consecutive pods share a domain.
        launch: The site's queue.
        facts: Queues of the namespace, and the topology levels of each.

    Raises:
        ConfigError: The queue does not exist, or none is named and there are several.
    """
    queue = choose_queue(podset.queue or launch.queue, facts)
    return KueueMetadata(
        root_labels={QUEUE_NAME: queue}, pod_annotations=_topology(podset, facts.levels.get(queue, ()))
    )


def choose_queue(wanted: str | None, facts: ClusterFacts) -> str:
    """LocalQueue of a gang: the wanted one, else the only one. Raises `ConfigError`."""
    known = ", ".join(sorted(facts.queues)) or "none at all"
    if wanted is None and len(facts.queues) == 1:
        return next(iter(facts.queues))
    if wanted is None:
        raise ConfigError(f"launch.queue: wanted the name of a queue, found none; this namespace has {known}")
    if wanted not in facts.queues:
        raise ConfigError(
            f"launch.queue: wanted a LocalQueue {wanted}, found no queue of that name; this namespace has {known}"
        )
    return wanted


def _topology(podset: PodSet, levels: Sequence[str]) -> dict[str, str]:
    """Annotations for the narrowest level above single servers, the groups of a gang.

    Empty without levels: an annotation excludes every flavor that has no topology.
    """
    if not levels or podset.num_nodes == 1:
        return {}
    groups = [level for level in levels if level != HOSTNAME]
    if not groups or podset.tile == 1:
        return {_PREFERRED: groups[-1] if groups else levels[-1]}
    if podset.tile == podset.num_nodes:
        return {_REQUIRED: groups[-1]}
    _demand_divides(podset)
    return {_PREFERRED: groups[-1], _SLICE_REQUIRED: groups[-1], _SLICE_SIZE: str(podset.tile)}


def _demand_divides(podset: PodSet) -> None:
    if podset.num_nodes % podset.tile:
        raise ConfigError(
            f"gang {podset.name}: wanted a tile that divides {podset.num_nodes} pods, found {podset.tile}"
        )
