"""Request of a gang for servers, read from its root: number of pods, their resources, where they may run.

Requests, selector and tolerations come from the pod template, into which a site renders more than the PodSet has.
Number, tile, pool and priority come from the PodSet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import SPEC
from gangline.launch.kubernetes.placement.resources import Amounts, pod_needs
from gangline.spec.gang.podset import PipelineTraffic, PodSet, ServerKind

_PRIORITIES = {"low": 0, "normal": 1, "high": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class GangRequest:
    """Resources and constraints of a gang's pods, as the placer reads them."""

    gang: str
    project: str = ""
    num_pods: int
    need: Amounts
    """Resources of one pod."""
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pool: str = ""
    """Only servers of this pool; empty: servers in no pool."""
    priority: int = 1
    """2 high, 1 normal, 0 low."""
    tile: int = 1
    """Consecutive pods that share a group."""
    pipeline: PipelineTraffic | None = None
    """Traffic of its plan; None: a ring goes over all pods."""
    devices_per_pod: int = 0
    kinds: tuple[ServerKind, ...] = ()
    """Kinds of its servers, in node-rank order; empty: they are of one kind."""

    @property
    def parts(self) -> tuple["GangRequest", ...]:
        """A request for the pods on servers of each kind, in node-rank order."""
        return tuple(
            replace(self, num_pods=each.num_nodes, selector={**self.selector, **each.labels}, kinds=())
            for each in self.kinds
        ) or (self,)

    def part_of(self, node_rank: int) -> "GangRequest":
        """The request among `parts` for the pod of `node_rank`."""
        ends = accumulate(each.num_pods for each in self.parts)
        return next(part for part, end in zip(self.parts, ends, strict=True) if node_rank < end)


def read_gang_request(root: Object, template: Object) -> GangRequest:
    """Request of the gang of `root`, whose pods are created from the pod `template`.

    Raises:
        IntegrityError: The root's PodSet is missing or damaged.
    """
    podset = _podset(root)
    spec = template.get("spec") or {}
    return GangRequest(
        gang=podset.name,
        project=podset.project,
        num_pods=podset.num_nodes,
        need=pod_needs(spec),
        selector=spec.get("nodeSelector") or {},
        tolerations=tuple(spec.get("tolerations") or ()),
        pool=podset.pool or "",
        priority=_PRIORITIES[podset.priority],
        tile=podset.tile,
        pipeline=podset.placement.pipeline if podset.placement else None,
        devices_per_pod=podset.resources.gpus or podset.procs_per_node,
        kinds=podset.kinds,
    )


def _podset(root: Object) -> PodSet:
    name = root["metadata"]["name"]
    text = (root["metadata"].get("annotations") or {}).get(SPEC)
    if text is None:
        raise IntegrityError(f"{name}: wanted its PodSet in the annotation {SPEC}, found none; submit the gang again")
    podset = PodSet.from_json(text)
    if podset.name != name:
        raise IntegrityError(f"{name}: {SPEC} is that of gang {podset.name}; submit the gang again")
    return podset
