"""What the rendering of a gang depends on, the names and labels of its objects, and the route by which it starts.

No clock: the time is an argument.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import gangline
from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
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

Route = Literal["gates", "kueue", "none"]
"""Who starts a gang whole: our placer, Kueue, or nobody."""

MAX_NAME = 42
"""JobSet's pods are called `<gang>-node-0-<index>-abcde`, and 63 characters is all they have."""
WAITING_SECONDS = 7 * 86_400.0
"""How long a gang may wait before it starts; counted into its hard end."""
LEAST_GRACE_SECONDS, MOST_GRACE_SECONDS = 30, 600
STOPPING_SECONDS = 10
"""What a keeper has beyond the grace of its ranks, to say how they ended."""
STARTING_SECONDS = 1_800
"""Pulling, joining and stopping: what Kubernetes' deadline has beyond that of the keepers, which end in order."""

_RFC_1035 = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderContext:
    podset: PodSet
    namespace: str
    pod: PodTable
    launch: LaunchTable
    facts: ClusterFacts
    route: Route
    now: datetime
    owner: Object | None = None
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    """What a batch scheduler reads from the template of the pod, see `queue_metadata`."""
    queue_labels: Mapping[str, str] = field(default_factory=dict)
    """What puts the root into a batch scheduler's queue, see `queue_metadata`."""

    def __post_init__(self) -> None:
        name = self.podset.name
        if len(name) > MAX_NAME or not _RFC_1035.fullmatch(name):
            raise ConfigError(
                f"gang name: wanted at most {MAX_NAME} of a-z, 0-9 and -, beginning with a letter and not ending in -,"
                f" found {name!r} ({len(name)} characters); a shorter project name gives a shorter one"
            )

    @property
    def queue_metadata(self) -> KueueMetadata:
        """What the batch scheduler is told: as given, else what Kueue needs.

        Raises:
            ConfigError: Kueue has no queue for this gang.
        """
        if self.route == "kueue" and not self.queue_labels:
            return kueue_metadata(self.podset, self.podset.placement, self.launch, self.facts)
        return KueueMetadata(root_labels=dict(self.queue_labels), pod_annotations=dict(self.pod_annotations))

    @property
    def image(self) -> str:
        if self.podset.image is None:
            raise ConfigError(
                f"gang {self.podset.name}: wanted an image by digest, found none; set registry.base in site.toml,"
                " or a registry.builder that makes one"
            )
        return self.podset.image

    @property
    def stop_seconds(self) -> int:
        """Termination grace of a pod: that of its ranks, and time to say how they ended."""
        wanted = math.ceil(self.podset.grace_seconds) + STOPPING_SECONDS
        return min(max(wanted, LEAST_GRACE_SECONDS), MOST_GRACE_SECONDS)

    @property
    def grace_seconds(self) -> float:
        """What ranks may take after they were asked to stop: all that the pod leaves them at most."""
        return min(self.podset.grace_seconds, float(self.stop_seconds - STOPPING_SECONDS))

    @property
    def deadline_seconds(self) -> int | None:
        """Of the Job, from when it is unsuspended."""
        wanted = self.podset.deadline_seconds
        return None if wanted is None else math.ceil(wanted) + self.stop_seconds + STARTING_SECONDS

    @property
    def priority_class(self) -> str | None:
        """Of the pods; None where the cluster has no class of that name."""
        name = f"gangline-{self.podset.priority}"
        return name if name in self.facts.priority_classes else None

    @property
    def metrics_ports(self) -> tuple[int, ...]:
        """Of the ranks of one pod; the same in every pod."""
        base = self.podset.metrics_port_base
        return () if base is None else tuple(range(base, base + self.podset.procs_per_node))


def labels(podset: PodSet) -> dict[str, str]:
    """On every object of a gang."""
    return {
        MANAGED_BY: "gangline",
        RUN: podset.run,
        GANG: podset.name,
        PROJECT: podset.project,
        COMMIT: podset.commit[:12],
        ROLE: podset.role,
    }


def annotations(context: RenderContext) -> dict[str, str]:
    """On root and pods."""
    found = {PODSET: context.podset.digest, VERSION: gangline.__version__}
    if context.deadline_seconds is not None:
        end = context.now + timedelta(seconds=WAITING_SECONDS + context.deadline_seconds)
        found[END] = rfc3339(end)
    return found


def metadata(context: RenderContext, *, root: bool = False) -> Object:
    """Name, labels and annotations; the root's hold the PodSet itself, so that differing fields can be named."""
    found: Object = {
        "name": context.podset.name,
        "namespace": context.namespace,
        "labels": labels(context.podset),
        "annotations": annotations(context),
    }
    if root:
        found["annotations"][SPEC] = context.podset.to_json().decode()
    if context.owner is not None:
        found["ownerReferences"] = [owner_reference(context.owner)]
    return found


def owner_reference(owner: Object) -> Object:
    """To an object as the server has it, with its uid; deleting it waits for nothing of ours."""
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
    """The site's word, else what the cluster can do: several pods are never left to the plain scheduler.

    Raises:
        ConfigError: The site wants Kueue or one of its queues, and the cluster has none.
    """
    if launch.route == "kueue" and not facts.kueue:
        raise ConfigError('launch.route: wanted "kueue", found no Kueue on this cluster; use "gates" or "auto"')
    if launch.route != "auto":
        return launch.route
    if podset.queue and not facts.kueue:
        raise ConfigError(
            f"launch.queue: wanted queue {podset.queue}, found no Kueue on this cluster, so nobody serves queues; leave"
            " launch.queue out and our placer starts gangs whole"
        )
    if podset.queue or (facts.topologies and facts.queues):
        return "kueue"
    return "gates" if podset.num_nodes > 1 else "none"
