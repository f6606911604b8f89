"""Root object of a gang (Job, TrainJob or JobSet): its kinds, its path, what its status says. Reads only.

Annotations of the root have the servers that the placer gave the gang: their names, and their groups in runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.labels import CANCELLED, GROUPS, PODSET, SERVERS, SPEC, collection_path
from gangline.launch.kubernetes.objects.render import choose_root
from gangline.launch.kubernetes.objects.root_objects import JOB_VERSION, JOBSET_VERSION, TRAINER_VERSION, job_of
from gangline.launch.kubernetes.state.pods import end_condition, true_condition
from gangline.launch.protocol import require_equal
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import PlacedServer, PodSet


@dataclass(frozen=True, slots=True)
class RootKind:
    """Resource of a root: group, version and plural name."""

    group_version: str
    plural: str

    def path(self, namespace: str, name: str = "") -> str:
        """Path of root `name`; without a name, of the collection."""
        path = collection_path(self.group_version, self.plural, namespace)
        return f"{path}/{name}" if name else path


JOB = RootKind(JOB_VERSION, "jobs")
TRAINJOB = RootKind(TRAINER_VERSION, "trainjobs")
JOBSET = RootKind(JOBSET_VERSION, "jobsets")
RUNTIME = RootKind(TRAINER_VERSION, "trainingruntimes")


@dataclass(frozen=True, slots=True)
class Root:
    """Root object of a gang as last read."""

    path: str
    object: Object

    @property
    def uid(self) -> str:
        """`metadata.uid`."""
        return str(self.object["metadata"]["uid"])

    @property
    def annotations(self) -> dict[str, str]:
        """`metadata.annotations`; empty if there are none."""
        return self.object["metadata"].get("annotations") or {}

    @property
    def is_being_deleted(self) -> bool:
        """Whether it is marked for deletion."""
        return self.object["metadata"].get("deletionTimestamp") is not None

    @property
    def is_suspended(self) -> bool:
        """Whether `spec.suspend` is true."""
        return bool(self.object["spec"].get("suspend"))

    @property
    def cancelled(self) -> str | None:
        """Reason of a cancellation; None: not cancelled."""
        return self.annotations.get(CANCELLED)

    @property
    def placed(self) -> tuple[PlacedServer, ...]:
        """Servers from the placer, in node-rank order; empty: it assigned none."""
        return read_placed(self.annotations)

    @property
    def servers(self) -> tuple[str, ...]:
        """Names of `placed`."""
        return tuple(server.name for server in self.placed)

    @property
    def lineage(self) -> tuple[str, ...]:
        """Paths from the root to the Job that creates its pods; each is the owner of the next."""
        head, plural, name = self.path.rsplit("/", 2)
        namespace = head.rpartition("/")[2]
        whole = (TRAINJOB.path(namespace, name), JOBSET.path(namespace, name), JOB.path(namespace, job_of(name)))
        return {TRAINJOB.plural: whole, JOBSET.plural: whole[1:]}.get(plural, (self.path,))

    @property
    def job(self) -> str:
        """Name of the Job that creates its pods."""
        return self.lineage[-1].rpartition("/")[2]

    def podset(self) -> PodSet:
        """The PodSet from which it was created.

        Raises:
            IntegrityError: The annotation is missing: gangline did not create this object.
        """
        spec = self.annotations.get(SPEC)
        if spec is None:
            raise IntegrityError(
                f"{self.path} was not created by gangline: no annotation {SPEC}; delete it, or choose another name"
            )
        return PodSet.from_json(spec)

    def condition(self, kind: str) -> Object | None:
        """Condition of type `kind` if its status is `True`, else None."""
        return true_condition(self.object, kind)

    @property
    def outcome(self) -> Object | None:
        """Condition by which it has ended, successful or failed; None: it has not ended."""
        return end_condition(self.object)

    @property
    def ended_well(self) -> bool:
        """Whether it has ended without the condition `Failed`."""
        return self.outcome is not None and self.condition("Failed") is None


def deletion_propagation(path: str) -> str:
    """Propagation policy for deleting the root at `path`.

    Most roots are deleted in the foreground, after their last pod. Not a TrainJob: Trainer creates the JobSet of one
    that is marked for deletion again, and its webhook refuses the deletion once the runtime is gone.
    """
    return "Background" if f"/{TRAINJOB.plural}/" in path else "Foreground"


def root_kinds(launch: LaunchTable, facts: ClusterFacts) -> tuple[RootKind, ...]:
    """Kinds of root that a gang of this cluster may have; the first is that of new gangs."""
    served = {"job": JOB, "jobset": JOBSET, "trainjob": TRAINJOB}
    first = choose_root(launch, facts)
    others = [JOB, *([JOBSET] if facts.jobset else []), *([TRAINJOB] if facts.trainer is not None else [])]
    return (served[first], *(other for other in others if other is not served[first]))


def find_root(api: KubernetesApi, name: str, kinds: tuple[RootKind, ...]) -> Root | None:
    """The root of gang `name`, with one request per kind; None: there is none."""
    for kind in kinds:
        path = kind.path(api.namespace, name)
        found = api.get(path)
        if found is not None:
            return Root(path, found)
    return None


def require_same_podset(root: Root, podset: PodSet) -> None:
    """Raises `IntegrityError` if `root` was created from another PodSet."""
    if root.annotations.get(PODSET) != podset.digest:
        require_equal(root.podset(), podset)


def placed_annotations(servers: Sequence[PlacedServer]) -> dict[str, str | None]:
    """Annotations for `servers` in node-rank order; groups as `BLOCK/GROUP*NUMBER`, None where none is known."""
    runs = [(place, len(list(run))) for place, run in groupby((server.block, server.group) for server in servers)]
    is_known = any(group for (_, group), _ in runs)
    groups = ",".join(f"{block}/{group}*{number}" for (block, group), number in runs)
    return {SERVERS: ",".join(server.name for server in servers), GROUPS: groups if is_known else None}


def read_placed(annotations: Mapping[str, str]) -> tuple[PlacedServer, ...]:
    """Servers in node-rank order; empty: the placer gave none. Groups that do not match them are not known."""
    names = [name for name in annotations.get(SERVERS, "").split(",") if name]
    places = [place for run in annotations.get(GROUPS, "").split(",") if run for place in _places(run)]
    if len(places) != len(names):
        return tuple(PlacedServer(name=name) for name in names)
    return tuple(
        PlacedServer(name=name, block=block, group=group) for name, (block, group) in zip(names, places, strict=True)
    )


def _places(run: str) -> list[tuple[str, str]]:
    place, _, number = run.rpartition("*")
    block, _, group = place.partition("/")
    return [(block, group)] * int(number) if number.isdecimal() and len(number) < 6 else []
