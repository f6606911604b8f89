"""Queued gangs: their roots, what they request, earlier refusals, and the order in which they start. Writes nothing.

A request is a number of pods, their resources, and where they may run. Resources, selector and tolerations come from
the pod template, into which a site renders more than the PodSet has; number, tile, pool and priority come from the
PodSet.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import MANAGED_BY, QUEUED, SPEC
from gangline.launch.kubernetes.placement.resources import Amounts, pod_needs
from gangline.launch.kubernetes.state.roots import JOB, JOBSET, RUNTIME, TRAINJOB, Root, RootKind
from gangline.spec.codec import from_json
from gangline.spec.gang.podset import PipelineTraffic, PodSet, ServerKind

PLACED = "gangline/placed"
"""Annotation of a root: time of the reservation under which it was last resumed; of a pod: when its gate was opened."""
REFUSED = "gangline/refused"
"""Annotation of a root: a `Refusal`."""
_KINDS = (JOB, TRAINJOB, JOBSET)
_READS_A_PROBE = 100
"""Number of reads after which a kind that was not served is probed again."""

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
            replace(self, num_pods=kind.num_nodes, selector={**self.selector, **kind.labels}, kinds=())
            for kind in self.kinds
        ) or (self,)

    def part_of(self, node_rank: int) -> "GangRequest":
        """The request among `parts` for the pod of `node_rank`."""
        ends = accumulate(part.num_pods for part in self.parts)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Failed attempts to start a gang on reserved servers."""

    times: int
    at: str
    """Time of the last failure, RFC 3339."""
    until: str
    """Time of the next attempt, RFC 3339."""
    servers: dict[str, str] = field(default_factory=dict)
    """Servers that did not take a pod, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedGang:
    """A gang that waits for servers or holds some."""

    root: Root
    request: GangRequest
    queued: datetime
    refusal: Refusal | None = None

    @property
    def name(self) -> str:
        """Name of the gang."""
        return self.request.gang

    @property
    def queue_key(self) -> tuple[int, datetime, str]:
        """Sort key among the gangs of a project: priority, then age."""
        return -self.request.priority, self.queued, self.name


@dataclass(frozen=True, slots=True)
class UnreadableGang:
    """A queued root that cannot be read, and why; other gangs are not affected."""

    root: Root
    why: str


class QueuedGangs:
    """Reads the queued gangs repeatedly; the immutable part of a root is parsed once."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._requests: dict[str, GangRequest] = {}
        self._served = {JOB}
        self._reads = 0

    def read(self) -> tuple[list[QueuedGang], list[UnreadableGang]]:
        """Queued gangs of the namespace in queue order, and those that cannot be read."""
        good, bad = [], []
        for root in self._roots():
            try:
                good.append(self._queued_gang(root))
            except IntegrityError as error:
                bad.append(UnreadableGang(root, str(error)))
        living = {gang.root.uid for gang in good}
        self._requests = {uid: request for uid, request in self._requests.items() if uid in living}
        return sorted(good, key=lambda gang: gang.queue_key), bad

    def _roots(self) -> list[Root]:
        if self._reads % _READS_A_PROBE == 0:
            self._served |= {kind for kind in _KINDS if kind not in self._served and self._is_served(kind)}
        self._reads += 1
        roots = []
        for kind in (each for each in _KINDS if each in self._served):
            path = kind.path(self._api.namespace)
            for each in self._api.items(path, labels=f"{MANAGED_BY}=gangline")[0]:
                root = Root(f"{path}/{each['metadata']['name']}", each)
                if QUEUED in root.annotations and is_living(root):
                    roots.append(root)
        return roots

    def _is_served(self, kind: RootKind) -> bool:
        found = self._api.read(f"/apis/{kind.group_version}") or {}
        return any(each.get("name") == kind.plural for each in found.get("resources") or ())

    def _queued_gang(self, root: Root) -> QueuedGang:
        if root.uid not in self._requests:
            self._requests[root.uid] = read_gang_request(root.object, self._template(root))
        marked, made = root.annotations[QUEUED], root.object["metadata"].get("creationTimestamp", "")
        refusal = root.annotations.get(REFUSED)
        return QueuedGang(
            root=root,
            request=self._requests[root.uid],
            queued=max(read_time(marked), read_time(made)),
            refusal=from_json(Refusal, refusal) if refusal else None,
        )

    def _template(self, root: Root) -> Object:
        """Pod template: of the Job, of the JobSet, or of the runtime that a TrainJob names."""
        spec = root.object["spec"]
        if "template" in spec:
            template: Object = spec["template"]
            return template
        if "runtimeRef" in spec:
            name = spec["runtimeRef"]["name"]
            runtime = self._api.get(RUNTIME.path(self._api.namespace, name))
            if runtime is None:
                raise IntegrityError(
                    f"{root.path}: wanted its TrainingRuntime {name}, found none; submit the gang again"
                )
            spec = runtime["spec"]["template"]["spec"]
        return _only(spec.get("replicatedJobs") or (), root)


def is_living(root: Root) -> bool:
    """Whether the gang has neither ended nor is ending, so that it may hold servers."""
    return not (root.is_being_deleted or root.cancelled is not None or root.outcome or root.condition("FailureTarget"))


def _only(jobs: Sequence[Any], root: Root) -> Object:
    if len(jobs) != 1:
        raise IntegrityError(f"{root.path}: wanted one replicated job, found {len(jobs)}; submit the gang again")
    template: Object = jobs[0]["template"]["spec"]["template"]
    return template


def read_time(text: str) -> datetime:
    """Time of an annotation, in UTC without an offset; the epoch if it is not a time."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class QueueOrder:
    """Order of waiting gangs: by priority, then the project that holds the fewest servers, then age.

    A project that queues a hundred gangs does not delay other projects. Iterating gives each waiting gang once; what
    starts in the meantime counts for those that follow.
    """

    def __init__(self, waiting: Iterable[QueuedGang], holding: Iterable[QueuedGang]) -> None:
        """`waiting` and `holding` are gangs of one pool; those of `holding` have servers."""
        self._held_devices: Counter[str] = Counter()
        for gang in holding:
            self.charge(gang)
        self._queues: dict[str, deque[QueuedGang]] = {}
        for gang in sorted(waiting, key=lambda queued_gang: queued_gang.queue_key):
            self._queues.setdefault(gang.request.project, deque()).append(gang)

    def charge(self, gang: QueuedGang) -> None:
        """Count the devices of `gang` for its project."""
        self._held_devices[gang.request.project] += gang.request.num_pods * gang.request.devices_per_pod

    def __iter__(self) -> Iterator[QueuedGang]:
        while self._queues:
            project = min(self._queues, key=self._project_key)
            yield self._queues[project].popleft()
            if not self._queues[project]:
                del self._queues[project]

    def _project_key(self, project: str) -> tuple[int, int, datetime, str]:
        priority, queued, name = self._queues[project][0].queue_key
        return priority, self._held_devices[project], queued, name


def _podset(root: Object) -> PodSet:
    name = root["metadata"]["name"]
    text = (root["metadata"].get("annotations") or {}).get(SPEC)
    if text is None:
        raise IntegrityError(f"{name}: wanted its PodSet in the annotation {SPEC}, found none; submit the gang again")
    podset = PodSet.from_json(text)
    if podset.name != name:
        raise IntegrityError(f"{name}: {SPEC} is that of gang {podset.name}; submit the gang again")
    return podset
