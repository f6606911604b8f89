"""Root objects of a gang: an Indexed Job, a JobSet, or a TrainJob of Kubeflow Trainer with its runtime.

Under JobSet, alone or inside a TrainingRuntime, a gang is one replicated Job, and JobSet makes the Service of its pods.

A TrainJob has a TrainingRuntime of its own, or runs under an administrator's. In Trainer 2.0 to 2.3 every field of the
template of an own TrainingRuntime has the same spelling. Under an administrator's ClusterTrainingRuntime, which has
what is alike for all gangs (`shared_runtime`), the TrainJob overrides the rest, in three spellings. What no field of
this Trainer can express is refused by name: a gang that silently runs without it would be worse.
"""

from gangline.errors import SIGTERM_CODE, ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.cluster.facts import TrainerSpelling
from gangline.launch.kubernetes.cluster.rights import JOBSET, TRAINER
from gangline.launch.kubernetes.objects.labels import CHILD, CONTAINER, DISRUPTION, FABRIC_GROUP, MANAGED_BY
from gangline.launch.kubernetes.objects.pod import pod_template
from gangline.launch.kubernetes.objects.render_context import MOST_GRACE_SECONDS, RenderContext, labels, metadata

JOB_VERSION, JOBSET_VERSION, TRAINER_VERSION = "batch/v1", f"{JOBSET}/v1alpha2", f"{TRAINER}/v1alpha1"
FINISHED_SECONDS = 3600
"""How long an ended root is kept for readers."""


def job(context: RenderContext) -> Object:
    """The Job of a gang, suspended; it runs once `suspend` is removed."""
    name = context.podset.name
    spec = job_spec(context, pod_template(context, job=name, subdomain=name))
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": metadata(context, root=True),
        "spec": spec | {"suspend": True, "ttlSecondsAfterFinished": FINISHED_SECONDS},
    }


def job_spec(context: RenderContext, template: Object) -> Object:
    """One pod per node; only a pod that was asked to leave is replaced: keepers restart ranks, the line restarts gangs.

    An evicted pod has a condition. A deleted pod (by a user, or by a queue that suspends its Job) has none; it is
    recognised by the exit code of a keeper that was asked to stop.
    """
    spec: Object = {
        "completionMode": "Indexed",
        "completions": context.podset.num_nodes,
        "parallelism": context.podset.num_nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": DISRUPTION, "status": "True"}]},
                {"action": "Ignore", "onExitCodes": _exit_code("In", SIGTERM_CODE)},
                {"action": "FailJob", "onExitCodes": _exit_code("NotIn", 0)},
            ]
        },
        "template": template,
    }
    if context.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = context.deadline_seconds
    return spec


def _exit_code(operator: str, code: int) -> Object:
    return {"containerName": CONTAINER, "operator": operator, "values": [code]}


EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def jobset(context: RenderContext) -> Object:
    """The JobSet of a gang, suspended; it runs once `suspend` is removed.

    By the route "jobset" its only Job gets one group of servers that no other such Job uses; pods of one group follow
    the first to the group that the scheduler chose for it, in any order.
    """
    described = metadata(context, root=True)
    if context.route == "jobset":
        described["annotations"][EXCLUSIVE_TOPOLOGY] = FABRIC_GROUP
    return {
        "apiVersion": JOBSET_VERSION,
        "kind": "JobSet",
        "metadata": described,
        "spec": jobset_spec(context) | {"suspend": True, "ttlSecondsAfterFinished": FINISHED_SECONDS},
    }


def job_of(gang: str) -> str:
    """Name of the Job that JobSet makes for a gang."""
    return f"{gang}-{CHILD}-0"


def jobset_spec(context: RenderContext, *, job_labels: dict[str, str] | None = None) -> Object:
    """`spec` without `suspend`, time to live and failure policy.

    Trainer 2.1 creates a JobSet that was deleted by its time to live again, and trains again. A failed Job fails the
    JobSet even without a policy of 0 restarts; controllers drop that 0 when they write the object, and the API server
    then refuses the write, as the policy is immutable.

    Args:
        context: Of the gang.
        job_labels: Additional labels of the Job.
    """
    name = context.podset.name
    template = pod_template(context, job=job_of(name))
    if context.podset.priority == "low":
        template["spec"].pop("priorityClassName", None)  # JobSet makes a label of its value: none begins with a minus
    child = {
        "name": CHILD,
        "replicas": 1,
        "template": {
            "metadata": {"labels": labels(context.podset) | (job_labels or {})},
            "spec": job_spec(context, template),
        },
    }
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "replicatedJobs": [child],
    }


_ANCESTOR = {f"{TRAINER}/trainjob-ancestor-step": "trainer"}
"""Label of the Job to which the settings of a TrainJob apply."""


def training_runtime(context: RenderContext) -> Object:
    """The TrainingRuntime of a gang, without a `torch` policy: Trainer sets the number of nodes only."""
    return {
        "apiVersion": TRAINER_VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata(context),
        "spec": {
            "mlPolicy": {"numNodes": context.podset.num_nodes},
            "template": {
                "metadata": {"labels": labels(context.podset)},
                "spec": jobset_spec(context, job_labels=_ANCESTOR),
            },
        },
    }


def trainjob(context: RenderContext) -> Object:
    """Suspended; runs when `suspend` is taken away."""
    return {
        "apiVersion": TRAINER_VERSION,
        "kind": "TrainJob",
        "metadata": metadata(context, root=True),
        "spec": {
            "runtimeRef": {"apiGroup": TRAINER, "kind": "TrainingRuntime", "name": context.podset.name},
            "suspend": True,
        },
    }


_MANAGER = "gangline/launcher"
"""Manager of this patch among those of others, such as Kueue's."""
_OF_EVERY_TRAINER = frozenset({"serviceAccountName", "nodeSelector", "tolerations", "volumes", "schedulingGates"})
_SPEC: dict[TrainerSpelling, frozenset[str]] = {
    "podSpecOverrides": _OF_EVERY_TRAINER,
    "podTemplateOverrides": _OF_EVERY_TRAINER | {"affinity", "imagePullSecrets"},
    "runtimePatches": _OF_EVERY_TRAINER | {"affinity", "imagePullSecrets", "securityContext"},
}
"""Fields of a pod's spec that a TrainJob may override."""
_CONTAINER: dict[TrainerSpelling, tuple[str, ...]] = {
    "podSpecOverrides": ("name", "volumeMounts"),
    "podTemplateOverrides": ("name", "volumeMounts"),
    "runtimePatches": ("name", "volumeMounts", "securityContext"),
}
_BROUGHT = frozenset(
    {
        "restartPolicy", "terminationGracePeriodSeconds", "automountServiceAccountToken", "enableServiceLinks",
        "dnsConfig", "securityContext",
    }
)  # fmt: skip
"""Fields of a pod's spec that the shared runtime sets."""
_BROUGHT_BY_CONTAINER = (
    "name", "image", "readinessProbe", "securityContext", "terminationMessagePath", "terminationMessagePolicy",
)  # fmt: skip


def overriding_trainjob(context: RenderContext, runtime: str, spelling: TrainerSpelling) -> Object:
    """Suspended; runs when `suspend` is taken away.

    Raises:
        ConfigError: This Trainer cannot override a field that the gang requires; the message names it.
    """
    template = pod_template(context, job=job_of(context.podset.name))
    _demand_sayable(context, runtime, spelling, template)
    return {
        "apiVersion": TRAINER_VERSION,
        "kind": "TrainJob",
        "metadata": metadata(context, root=True),
        "spec": {
            "runtimeRef": {"apiGroup": TRAINER, "kind": "ClusterTrainingRuntime", "name": runtime},
            "trainer": _trainer(context, template),
            spelling: [_said(spelling, template)],
            "suspend": True,
        },
    }


def shared_runtime(context: RenderContext, runtime: str) -> Object:
    """The ClusterTrainingRuntime to which such TrainJobs refer; an administrator creates it."""
    spec = jobset_spec(context, job_labels=_ANCESTOR)
    del spec["network"]["subdomain"]  # the name of each JobSet, as long as nothing else is said
    (child,) = spec["replicatedJobs"]
    child["template"]["metadata"]["labels"] = {MANAGED_BY: "gangline", **_ANCESTOR}
    job = child["template"]["spec"]
    for own in ("activeDeadlineSeconds", "completions", "parallelism"):
        job.pop(own, None)
    job["template"] = _brought(job["template"])
    return {
        "apiVersion": TRAINER_VERSION,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": runtime, "labels": {MANAGED_BY: "gangline"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": spec}},
    }


def _brought(template: Object) -> Object:
    """The fields of a shared runtime, with the longest grace; keepers stop after that of their own gang."""
    (container,) = template["spec"]["containers"]
    return {
        "spec": {name: value for name, value in template["spec"].items() if name in _BROUGHT}
        | {
            "terminationGracePeriodSeconds": MOST_GRACE_SECONDS,
            "containers": [{name: container[name] for name in _BROUGHT_BY_CONTAINER}],
        }
    }


def _demand_sayable(context: RenderContext, runtime: str, spelling: TrainerSpelling, template: Object) -> None:
    unsaid = sorted(set(template["spec"]) - _SPEC[spelling] - _BROUGHT - {"containers", "priorityClassName"})
    if spelling == "podSpecOverrides":
        unsaid.insert(0, "labels and annotations of pods")
    if context.podset.priority != "normal" and context.priority_class is not None:
        unsaid.append("priorityClassName")
    if context.pod.pull != "IfNotPresent":  # what Kubernetes does with a digest
        unsaid.append("imagePullPolicy")
    if unsaid:
        raise ConfigError(
            f"gang {context.podset.name} under ClusterTrainingRuntime {runtime}: wanted {', '.join(unsaid)}, found a"
            f" Trainer whose TrainJobs cannot override it ({spelling}); leave launch.runtime out of site.toml, so that"
            ' every gang has a runtime of its own, or set launch.launcher = "job"'
        )


def _trainer(context: RenderContext, template: Object) -> Object:
    """`spec.trainer` without PET_*, which a `torch` policy of the runtime sets."""
    (container,) = template["spec"]["containers"]
    return {
        "image": container["image"],
        "command": container["command"],
        "env": [each for each in container["env"] if not each["name"].startswith("PET_")],
        "numNodes": context.podset.num_nodes,
        "resourcesPerNode": container["resources"],
    }


def _said(spelling: TrainerSpelling, template: Object) -> Object:
    """The override in the given spelling."""
    (container,) = template["spec"]["containers"]
    spec = {name: value for name, value in template["spec"].items() if name in _SPEC[spelling]}
    spec["containers"] = [{name: container[name] for name in _CONTAINER[spelling]}]
    targets = [{"name": CHILD}]
    match spelling:
        case "podSpecOverrides":
            return {"targetJobs": targets, **spec}
        case "podTemplateOverrides":
            return {"targetJobs": targets, "metadata": template["metadata"], "spec": spec}
        case "runtimePatches":
            patched = {
                "name": CHILD,
                "template": {"spec": {"template": {"metadata": template["metadata"], "spec": spec}}},
            }
            return {
                "manager": _MANAGER,
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patched]}}},
            }
