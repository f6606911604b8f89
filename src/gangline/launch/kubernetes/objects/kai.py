"""Labels and annotations by which KAI takes a gang: queue, priority, and the group of servers that its pods share.

KAI makes the PodGroup itself, from the top owner of a pod. From 0.13 on it asks for all pods of a JobSet at once, also
of that of a TrainJob; under a plain Job every pod is a group of its own. KAI binds pods in any order: it keeps a gang
together, but no order of ranks.
"""

from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import KaiFacts
from gangline.launch.kubernetes.objects.labels import FABRIC_GROUP, HOSTNAME
from gangline.spec.gang.podset import PodSet

_QUEUE = "kai.scheduler/queue"
_PRIORITY = "priorityClassName"
"""Label; without it the class of the pods counts, which those of a JobSet cannot always have."""
_TOPOLOGY = "kai.scheduler/topology"
_REQUIRED = "kai.scheduler/topology-required-placement"
_PREFERRED = "kai.scheduler/topology-preferred-placement"
_WORKS = 'launch.route "gates" works without KAI'


@dataclass(frozen=True, kw_only=True, slots=True)
class KaiMetadata:
    """What KAI reads from the root of a gang."""

    labels: dict[str, str]
    annotations: dict[str, str]


def kai_metadata(
    podset: PodSet, queue: str | None, facts: KaiFacts, *, priority_class: str | None = None
) -> KaiMetadata:
    """Labels and annotations of the root.

    Args:
        podset: Its queue overrides the site's.
        queue: Of the site.
        facts: Queues and topologies, as far as known.
        priority_class: Of the gang; None: the cluster has none for it.

    Raises:
        ConfigError: KAI has no such queue, or cannot keep the gang's tiles together.
    """
    labels = {_QUEUE: _choose_queue(podset.queue or queue, facts)}
    labels |= {} if priority_class is None else {_PRIORITY: priority_class}
    return KaiMetadata(labels=labels, annotations=_topology(podset, facts))


def require_gang(podset: PodSet, root: str) -> None:
    """Raises `ConfigError` if KAI would start the pods under this kind of root one by one."""
    if root == "job" and podset.num_nodes > 1:
        raise ConfigError(
            f'gang {podset.name}: wanted {podset.num_nodes} pods at once by launch.route "kai", found a plain Job as'
            f' the root, whose pods KAI starts one by one; set launch.launcher = "jobset", or {_WORKS}'
        )


def _choose_queue(wanted: str | None, facts: KaiFacts) -> str:
    if wanted is None and facts.queues is not None and len(facts.queues) == 1:
        return facts.queues[0]
    known = "not known to this account" if facts.queues is None else ", ".join(facts.queues) or "none at all"
    if wanted is None:
        raise ConfigError(f"launch.queue: wanted the name of a queue of KAI, found none; its queues: {known}")
    if facts.queues is not None and wanted not in facts.queues:
        raise ConfigError(f"launch.queue: wanted a queue {wanted} of KAI without queues below it, found {known}")
    return wanted


def _topology(podset: PodSet, facts: KaiFacts) -> dict[str, str]:
    """One group is required for a gang that is one tile, and preferred for others of several pods with GPUs.

    KAI takes even what is preferred as a bound: servers that lack a label of the Topology get no pod. Those with GPUs
    are what Topologies are made for; others would often have none of its labels, and gangs would wait for ever.
    KAI cannot say tiles of a JobSet: its segments are for PyTorchJobs and LeaderWorkerSets.
    """
    if podset.num_nodes == 1 or (podset.tile == 1 and not podset.resources.gpus):
        return {}
    if 1 < podset.tile < podset.num_nodes:
        raise ConfigError(
            f"gang {podset.name}: wanted tiles of {podset.tile} pods in one group each, found KAI, which places the"
            ' pods of a JobSet as a whole; use launch.route "gates" or "kueue"'
        )
    found = _group_level(facts.topologies or {})
    if found is None and podset.tile > 1:
        raise ConfigError(
            f"gang {podset.name}: wanted its {podset.tile} pods in one group, found {_topologies_text(facts)}; {_WORKS}"
        )
    if found is None:
        return {}
    topology, level = found
    return {_TOPOLOGY: topology, _REQUIRED if podset.tile > 1 else _PREFERRED: level}


def _group_level(topologies: dict[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """The only Topology with a level above single servers, and the narrowest such level.

    Of several, the only one that has our label of groups. None: there is none, or the choice is not ours.
    """
    levels = {name: [each for each in topology if each != HOSTNAME] for name, topology in topologies.items()}
    usable = {name: level for name, level in levels.items() if level}
    ours = {name: [FABRIC_GROUP] for name, found in usable.items() if FABRIC_GROUP in found}
    chosen = ours if len(ours) == 1 else usable
    if len(chosen) != 1:
        return None
    (name, found), *_ = chosen.items()
    return name, found[-1]


def _topologies_text(facts: KaiFacts) -> str:
    if facts.topologies is None:
        return "Topologies of KAI that this account may not list"
    names = ", ".join(sorted(facts.topologies)) or "none"
    return f"no single Topology of KAI with a level {FABRIC_GROUP} or another above {HOSTNAME} (Topologies: {names})"
