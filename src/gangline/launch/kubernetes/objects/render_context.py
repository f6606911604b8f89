"""Inputs for rendering a gang, the metadata of its objects, and the choice of the route by which it starts.

It reads no clock: the time is an argument.
"""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import gangline
from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, KaiFacts
from gangline.launch.kubernetes.objects.kai import kai_metadata
from gangline.launch.kubernetes.objects.kueue import KueueMetadata, kueue_metadata
from gangline.launch.kubernetes.objects.labels import (
    COMMIT,
    END,
    GANG,
    MANAGED_BY,
    PODSET,
    PROJECT,
    ROLE,
    RUN,
    SPEC,
    VERSION,
    rfc3339,
)
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import PodSet

Route = Literal["gates", "kueue", "jobset", "volcano", "kai", "none"]
"""Component that starts all pods of a gang together: gangline's placer, Kueue, JobSet, Volcano, KAI, or none."""

_MAX_NAME = 42
"""JobSet names pods `<gang>-node-0-<index>-abcde`, in at most 63 characters."""
_WAITING_SECONDS = 7 * 86_400.0
"""How long a gang may wait before it starts; part of its latest end."""
LEAST_GRACE_SECONDS, MOST_GRACE_SECONDS = 30, 600
_STOPPING_SECONDS = 10
"""Time of a keeper after the grace of its ranks, to report how they ended."""
STARTING_SECONDS = 1_800
"""Time to pull, join and stop, by which the deadline of the Job exceeds that of the keepers, which end in order."""

_RFC_1035 = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderContext:
    """Inputs for the objects of one gang. Raises `ConfigError` for an invalid gang name."""

    podset: PodSet
    namespace: str
    pod: PodTable
    launch: LaunchTable
    facts: ClusterFacts
    route: Route
    now: datetime
    owner: Object | None = None

    def __post_init__(self) -> None:
        if self.podset.kinds and self.route != "gates":
            raise ConfigError(f"gang {self.podset.name}: its servers are of two kinds of GPU; {_one_kind(self.route)}")
        name = self.podset.name
        if len(name) > _MAX_NAME or not _RFC_1035.fullmatch(name):
            raise ConfigError(
                f"gang name: wanted at most {_MAX_NAME} of a-z, 0-9 and -, beginning with a letter and not ending in -,"
                f" found {name!r} ({len(name)} characters); a shorter project name gives a shorter one"
            )

    @property
    def queue_metadata(self) -> KueueMetadata:
        """Labels and annotations for Kueue; none with another route.

        Raises:
            ConfigError: Kueue has no queue for this gang.
        """
        if self.route == "kueue":
            return kueue_metadata(self.podset, self.launch, self.facts)
        return KueueMetadata(root_labels={})

    @property
    def image(self) -> str:
        """Image of the pods, by digest. Raises `ConfigError` if the PodSet has none."""
        if self.podset.image is None:
            raise ConfigError(
                f"gang {self.podset.name}: wanted an image by digest, found none; set registry.base in site.toml,"
                " or a registry.builder that makes one"
            )
        return self.podset.image

    @property
    def stop_seconds(self) -> int:
        """Termination grace of a pod: that of its ranks, and time to report how they ended."""
        wanted = math.ceil(self.podset.grace_seconds) + _STOPPING_SECONDS
        return min(max(wanted, LEAST_GRACE_SECONDS), MOST_GRACE_SECONDS)

    @property
    def grace_seconds(self) -> float:
        """Time of ranks to stop: that of the PodSet, at most what the pod's grace leaves."""
        return min(self.podset.grace_seconds, float(self.stop_seconds - _STOPPING_SECONDS))

    @property
    def deadline_seconds(self) -> int | None:
        """Deadline of the Job, from when it is resumed; None: no limit."""
        wanted = self.podset.deadline_seconds
        return None if wanted is None else math.ceil(wanted) + self.stop_seconds + STARTING_SECONDS

    @property
    def priority_class(self) -> str | None:
        """PriorityClass of the pods; None if the cluster does not have it."""
        name = f"gangline-{self.podset.priority}"
        return name if name in self.facts.priority_classes else None

    @property
    def metrics_ports(self) -> tuple[int, ...]:
        """Ports of the ranks of a pod; the same in every pod."""
        base = self.podset.metrics_port_base
        return () if base is None else tuple(range(base, base + self.podset.procs_per_node))


def labels(podset: PodSet) -> dict[str, str]:
    """Labels of every object of a gang."""
    return {
        MANAGED_BY: "gangline",
        RUN: podset.run,
        GANG: podset.name,
        PROJECT: podset.project,
        COMMIT: podset.commit[:12],
        ROLE: podset.role,
    }


def annotations(context: RenderContext) -> dict[str, str]:
    """Annotations of root and pods."""
    found = {PODSET: context.podset.digest, VERSION: gangline.__version__}
    if context.deadline_seconds is not None:
        end = context.now + timedelta(seconds=_WAITING_SECONDS + context.deadline_seconds)
        found[END] = rfc3339(end)
    return found


def metadata(context: RenderContext, *, root: bool = False) -> Object:
    """`metadata` of an object; the root's annotations hold the PodSet, so that differing fields can be named."""
    found: Object = {
        "name": context.podset.name,
        "namespace": context.namespace,
        "labels": labels(context.podset),
        "annotations": annotations(context),
    }
    if root:
        found["annotations"][SPEC] = context.podset.to_json().decode()
    if root and context.route == "kai":
        read_by_kai = kai_metadata(
            context.podset, context.launch.queue, context.facts.kai or KaiFacts(), priority_class=context.priority_class
        )
        found["labels"] |= read_by_kai.labels
        found["annotations"] |= read_by_kai.annotations
    if context.owner is not None:
        found["ownerReferences"] = [owner_reference(context.owner)]
    return found


def owner_reference(owner: Object) -> Object:
    """Owner reference to an object as read from the server; it does not block the deletion of the owner."""
    named = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": named["name"],
        "uid": named["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }


def choose_route(podset: PodSet, launch: LaunchTable, facts: ClusterFacts) -> Route:
    """Route of a gang: as configured, else what the cluster offers; several pods never use the plain scheduler.

    Raises:
        ConfigError: The site configures a component or a queue that the cluster does not have, or JobSet for another
            root.
    """
    return _route(podset.queue, podset.num_nodes, launch, facts)


def why_one_kind(launch: LaunchTable, facts: ClusterFacts) -> str:
    """Why no gang here has servers of two kinds of GPU; empty: it may."""
    route = _route(launch.queue, 2, launch, facts)
    return "" if route == "gates" else _one_kind(route)


def _one_kind(route: Route) -> str:
    return f'launch.route "{route}" starts equal pods; the placer of gangline ("gates") gives each its kind'


def _route(queue: str | None, num_nodes: int, launch: LaunchTable, facts: ClusterFacts) -> Route:
    has = {"kueue": ("Kueue", facts.kueue), "volcano": ("Volcano", facts.volcano), "kai": ("KAI", facts.kai)}
    component, is_there = has.get(launch.route, ("", True))
    if not is_there:
        raise ConfigError(
            f'launch.route: wanted "{launch.route}", found no {component} on this cluster; use "gates" or "auto"'
        )
    if launch.route == "jobset" and launch.launcher != "jobset":
        raise ConfigError(
            f'launch.route: wanted launch.launcher = "jobset" with "jobset", found "{launch.launcher}"; set both, or'
            ' use "gates" or "auto"'
        )
    if launch.route == "jobset" and num_nodes == 1:
        return "none"  # it would hold a whole group
    if launch.route != "auto":
        return launch.route
    if queue and not facts.kueue:
        raise ConfigError(
            f"launch.queue: wanted queue {queue}, found no Kueue on this cluster, so there are no queues; leave"
            " launch.queue out, and the placer of gangline starts the gang"
        )
    if queue or (facts.topologies and facts.queues):
        return "kueue"
    return "gates" if num_nodes > 1 else "none"
