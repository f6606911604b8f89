"""Root object of a gang (Job, TrainJob or JobSet): its kinds, its path, what its status says. Reads only."""

from dataclasses import dataclass

from gangline.errors import IntegrityError
from gangline.launch.kubernetes.client.api import KubernetesApi, Object
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects import job, jobset, trainjob
from gangline.launch.kubernetes.objects.labels import CANCELLED, PODSET, SERVERS, SPEC, collection_path
from gangline.launch.kubernetes.objects.render import choose_root
from gangline.launch.kubernetes.state.pods import true_condition
from gangline.launch.protocol import demand_equal
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import PodSet


@dataclass(frozen=True, slots=True)
class RootKind:
    group_version: str
    plural: str

    def path(self, namespace: str, name: str = "") -> str:
        path = collection_path(self.group_version, self.plural, namespace)
        return f"{path}/{name}" if name else path


JOB = RootKind(job.GROUP_VERSION, "jobs")
TRAINJOB = RootKind(trainjob.GROUP_VERSION, "trainjobs")
JOBSET = RootKind(jobset.GROUP_VERSION, "jobsets")
RUNTIME = RootKind(trainjob.GROUP_VERSION, "trainingruntimes")


@dataclass(frozen=True, slots=True)
class Root:
    """A gang's root as it was read."""

    path: str
    object: Object

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])

    @property
    def annotations(self) -> dict[str, str]:
        return self.object["metadata"].get("annotations") or {}

    @property
    def is_being_deleted(self) -> bool:
        return self.object["metadata"].get("deletionTimestamp") is not None

    @property
    def is_suspended(self) -> bool:
        return bool(self.object["spec"].get("suspend"))

    @property
    def cancelled(self) -> str | None:
        """Why somebody cancelled it."""
        return self.annotations.get(CANCELLED)

    @property
    def servers(self) -> tuple[str, ...]:
        """Where the placer sends its pods, in node-rank order; empty where no placer did."""
        return tuple(filter(None, self.annotations.get(SERVERS, "").split(",")))

    @property
    def lineage(self) -> tuple[str, ...]:
        """Paths of all that makes its pods, itself first; each is the owner of the next."""
        head, plural, name = self.path.rsplit("/", 2)
        namespace = head.rpartition("/")[2]
        whole = (TRAINJOB.path(namespace, name), JOBSET.path(namespace, name), JOB.path(namespace, jobset.job_of(name)))
        return {TRAINJOB.plural: whole, JOBSET.plural: whole[1:]}.get(plural, (self.path,))

    @property
    def job(self) -> str:
        """Name of the Job that makes its pods."""
        return self.lineage[-1].rpartition("/")[2]

    def podset(self) -> PodSet:
        """What it was made from.

        Raises:
            IntegrityError: It does not say; something else made it.
        """
        spec = self.annotations.get(SPEC)
        if spec is None:
            raise IntegrityError(
                f"{self.path} was not made by gangline: it has no annotation {SPEC}; delete it, or choose another name"
            )
        return PodSet.from_json(spec)

    def condition(self, kind: str) -> Object | None:
        """The condition of that type, where it is true; looked up by type, as their order says nothing."""
        return true_condition(self.object, kind)

    @property
    def outcome(self) -> Object | None:
        """The condition by which it has ended, well or not."""
        return self.condition("Complete") or self.condition("Completed") or self.condition("Failed")

    @property
    def ended_well(self) -> bool:
        return self.outcome is not None and self.condition("Failed") is None


def deletion_options(path: str) -> str:
    """How the root at `path` is to go.

    Most stay, marked, until the last of their pods is gone. Not a TrainJob: of one that is marked Trainer makes the
    JobSet anew; and where its runtime went before it, Trainer's webhook refuses to let it go.
    """
    return "Background" if f"/{TRAINJOB.plural}/" in path else "Foreground"


def root_kinds(launch: LaunchTable, facts: ClusterFacts) -> tuple[RootKind, ...]:
    """Kinds that a gang of this cluster may stand under, the one that new gangs get first."""
    served = {"job": JOB, "jobset": JOBSET, "trainjob": TRAINJOB}
    first, _ = choose_root(launch, facts)
    others = [JOB, *([JOBSET] if facts.jobset else []), *([TRAINJOB] if facts.trainer is not None else [])]
    return (served[first], *(each for each in others if each is not served[first]))


def find_root(api: KubernetesApi, name: str, kinds: tuple[RootKind, ...]) -> Root | None:
    """Reads by name, one request a kind."""
    for kind in kinds:
        path = kind.path(api.namespace, name)
        found = api.get(path)
        if found is not None:
            return Root(path, found)
    return None


def require_same_podset(root: Root, podset: PodSet) -> None:
    """Raises `IntegrityError` where `root` was made from another PodSet than `podset`."""
    if root.annotations.get(PODSET) != podset.digest:
        demand_equal(root.podset(), podset)
