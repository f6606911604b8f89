"""Template of a gang's pods, the same under every root; the first process is a keeper without privileges."""

import math

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects import coordinator
from gangline.launch.kubernetes.objects.labels import CONTAINER, PLACEMENT_GATE, POOL, SCHEDULERS, secret_name
from gangline.launch.kubernetes.objects.pod_environment import (
    CONTROL_PORT,
    HOME,
    READY_PORT,
    RENDEZVOUS_PORT,
    SECRETS_FOLDER,
    confinement,
    literal,
    pod_environment,
    unprivileged,
)
from gangline.launch.kubernetes.objects.render_context import RenderContext, annotations, labels

VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup of Volcano, which otherwise makes one a pod."""
_TMP_BYTES = 2 * 1024**3
_LOST_NODE_SECONDS = 60
"""How long pods stay bound to a lost server; with the default of 5 minutes the other servers idle."""


def pod_template(context: RenderContext, *, job: str, subdomain: str | None = None) -> Object:
    """`spec.template` of a Job.

    Args:
        context: Of the gang.
        job: Name of the Job, from which follow the names of the pod of node 0 and of the Secret.
        subdomain: Of the pods, if the root does not set one.
    """
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": context.stop_seconds,
        "serviceAccountName": context.pod.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "securityContext": unprivileged(context.pod.user),
        "tolerations": _tolerations(context),
        "containers": [_container(context, f"{job}-0.{context.podset.name}")],
        "volumes": [*volumes(context, job=job), *coordinator.volumes(context, job=job)],
    }
    if sidecars := coordinator.containers(context):
        spec["initContainers"] = sidecars
    if subdomain is not None:
        spec["subdomain"] = subdomain
    if context.priority_class is not None:
        spec["priorityClassName"] = context.priority_class
    if context.pod.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in context.pod.pull_secrets]
    spec |= _where(context)
    noted = annotations(context) | context.queue_metadata.pod_annotations
    if context.route == "volcano":
        noted[VOLCANO_GROUP] = context.podset.name
    return {"metadata": {"labels": labels(context.podset), "annotations": noted}, "spec": spec}


def resources(context: RenderContext) -> Object:
    """Equal requests and limits."""
    asked = requests(context)
    return {"requests": asked, "limits": dict(asked)}


def requests(context: RenderContext, *, num_pods: int = 1) -> dict[str, str]:
    """Resources of `num_pods` pods; the memory includes /dev/shm, which counts against the container."""
    wanted, pod, procs = context.podset.resources, context.pod, context.podset.procs_per_node
    cpus = wanted.cpus if wanted.cpus is not None else pod.cpus * procs
    memory = wanted.memory_bytes if wanted.memory_bytes is not None else int(pod.memory_bytes) * procs
    asked = {"cpu": _cpus(cpus, num_pods), "memory": str((memory + _shm_bytes(context)) * num_pods)}
    if wanted.gpus:
        asked[pod.gpu] = str(wanted.gpus * num_pods)
    if rdma := _num_rdma(context):
        asked[str(pod.rdma)] = str(rdma * num_pods)
    return asked


def volumes(context: RenderContext, *, job: str) -> list[Object]:
    """Work, `/tmp` and `/dev/shm`, and the Secret of `job` if the PodSet names secrets."""
    found: list[Object] = [
        {"name": "work", "emptyDir": {"sizeLimit": str(int(context.pod.disk_bytes))}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(_TMP_BYTES)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(_shm_bytes(context))}},
    ]
    if context.podset.secrets:
        found.append({"name": "secrets", "secret": {"secretName": secret_name(job), "defaultMode": 0o440}})
    return found


def volume_mounts(context: RenderContext) -> list[Object]:
    """Mounts of `volumes` in the container of a keeper."""
    found: list[Object] = [
        {"name": "work", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 -- a volume of the pod's own
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 -- likewise
    ]
    if context.podset.secrets:  # the whole volume: files mounted by subPath are never renewed
        found.append({"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True})
    return found


def _container(context: RenderContext, master: str) -> Object:
    return {
        "name": CONTAINER,
        "image": context.image,
        "imagePullPolicy": context.pod.pull,
        "command": [literal(part) for part in context.podset.command],
        "env": pod_environment(context, master=master),
        "ports": _ports(context),
        "resources": resources(context),
        "readinessProbe": {
            "tcpSocket": {"port": READY_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 3,
        },
        "securityContext": confinement(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*volume_mounts(context), *coordinator.rank_mounts(context)],
    }


def _ports(context: RenderContext) -> list[Object]:
    own = {"rendezvous": RENDEZVOUS_PORT, "control": CONTROL_PORT, "ready": READY_PORT}
    own |= {f"metrics-{local_rank}": port for local_rank, port in enumerate(context.metrics_ports)}
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in own.items()]


def _tolerations(context: RenderContext) -> list[Object]:
    found: list[Object] = [{"key": key, "operator": "Exists"} for key in context.pod.tolerate]
    if context.podset.pool is not None:
        found.append({"key": POOL, "operator": "Equal", "value": context.podset.pool})
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_SECONDS}
    return found + [{"key": f"node.kubernetes.io/{why}"} | lost for why in ("not-ready", "unreachable")]


def _where(context: RenderContext) -> Object:
    """Node selector, and who chooses the servers: our placer behind a gate, or another scheduler."""
    podset = context.podset
    planned = podset.placement.labels if podset.placement else {}
    selector = {**context.pod.selector, **planned, **({POOL: podset.pool} if podset.pool is not None else {})}
    found: Object = {"nodeSelector": selector} if selector else {}
    if context.route == "gates":
        found["schedulingGates"] = [{"name": PLACEMENT_GATE}]
    if context.route in SCHEDULERS:
        found["schedulerName"] = SCHEDULERS[context.route]
    return found


def _shm_bytes(context: RenderContext) -> int:
    wanted = context.podset.resources.shm_bytes
    return int(context.pod.shm_bytes) if wanted is None else wanted


def _num_rdma(context: RenderContext) -> int:
    """RDMA devices of a pod: as the PodSet requests, else one per GPU if the site names their resource."""
    wanted = context.podset.resources
    if wanted.rdma and context.pod.rdma is None:
        raise ConfigError(
            f"gang {context.podset.name}: wanted {wanted.rdma} RDMA devices a pod, found no name for them;"
            " set pod.rdma in site.toml, e.g. rdma/hca"
        )
    return wanted.rdma or (wanted.gpus if context.pod.rdma is not None else 0)


def _cpus(cores: float, num_pods: int) -> str:
    whole, rest = divmod(math.ceil(round(cores * 1000, 3)) * num_pods, 1000)
    return str(whole) if not rest else f"{whole * 1000 + rest}m"
