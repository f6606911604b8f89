"""The template of a gang's pods, the same under every root: a keeper is the first process, and may do nothing else."""

import math

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import CONTAINER, HOSTNAME, PLACEMENT_GATE, POOL, secret_name
from gangline.launch.kubernetes.objects.pod_environment import (
    CONTROL_PORT,
    HOME,
    READY_PORT,
    RENDEZVOUS_PORT,
    SECRETS_FOLDER,
    literal,
    pod_environment,
)
from gangline.launch.kubernetes.objects.render_context import RenderContext, annotations, labels

TMP_BYTES = 2 * 1024**3
LOST_NODE_SECONDS = 60
"""How long pods stay bound to a server that went away; Kubernetes' own 5 minutes hold the other servers idle."""


def pod_template(setting: RenderContext, *, job: str, subdomain: str | None = None) -> Object:
    """`template` of a Job.

    Args:
        setting: Of the gang.
        job: Name of that Job: of its first pod, which is node 0, and of the Secret of its pods.
        subdomain: Of the pods, where the root does not give them one.
    """
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": setting.stop_seconds,
        "serviceAccountName": setting.pod.account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "securityContext": _security(setting),
        "tolerations": _tolerations(setting),
        "containers": [_container(setting, f"{job}-0.{setting.podset.name}")],
        "volumes": volumes(setting, job=job),
    }
    if subdomain is not None:
        spec["subdomain"] = subdomain
    if setting.priority_class is not None:
        spec["priorityClassName"] = setting.priority_class
    if setting.pod.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in setting.pod.pull_secrets]
    spec |= _where(setting)
    noted = annotations(setting) | setting.wishes.pod_annotations
    return {"metadata": {"labels": labels(setting.podset), "annotations": noted}, "spec": spec}


def resources(setting: RenderContext) -> Object:
    """Requests and limits, equal; /dev/shm is memory of the container that writes to it."""
    wanted, pod, procs = setting.podset.resources, setting.pod, setting.podset.procs_per_node
    cpus = wanted.cpus if wanted.cpus is not None else pod.cpus * procs
    memory = wanted.memory_bytes if wanted.memory_bytes is not None else int(pod.memory_bytes) * procs
    asked = {"cpu": _cpus(cpus), "memory": str(memory + _shm_bytes(setting))}
    if wanted.gpus:
        asked[pod.gpu] = str(wanted.gpus)
    if rdma := _num_rdma(setting):
        asked[str(pod.rdma)] = str(rdma)
    return {"requests": asked, "limits": dict(asked)}


def volumes(setting: RenderContext, *, job: str) -> list[Object]:
    found: list[Object] = [
        {"name": "work", "emptyDir": {"sizeLimit": str(int(setting.pod.disk_bytes))}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(TMP_BYTES)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(_shm_bytes(setting))}},
    ]
    if setting.podset.secrets:
        found.append({"name": "secrets", "secret": {"secretName": secret_name(job), "defaultMode": 0o440}})
    return found


def volume_mounts(setting: RenderContext) -> list[Object]:
    found: list[Object] = [
        {"name": "work", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 -- a volume of the pod's own
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 -- likewise
    ]
    if setting.podset.secrets:  # the whole volume: files mounted by subPath are never renewed
        found.append({"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True})
    return found


def _container(setting: RenderContext, master: str) -> Object:
    return {
        "name": CONTAINER,
        "image": setting.image,
        "imagePullPolicy": setting.pod.pull,
        "command": [literal(part) for part in setting.podset.command],
        "env": pod_environment(setting, master=master),
        "ports": _ports(setting),
        "resources": resources(setting),
        "readinessProbe": {
            "tcpSocket": {"port": READY_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 3,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volume_mounts(setting),
    }


def _ports(setting: RenderContext) -> list[Object]:
    own = {"rendezvous": RENDEZVOUS_PORT, "control": CONTROL_PORT, "ready": READY_PORT}
    own |= {f"metrics-{local_rank}": port for local_rank, port in enumerate(setting.metrics_ports)}
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in own.items()]


def _security(setting: RenderContext) -> Object:
    user = setting.pod.user
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _tolerations(setting: RenderContext) -> list[Object]:
    found: list[Object] = [{"key": key, "operator": "Exists"} for key in setting.pod.tolerate]
    if setting.podset.pool is not None:
        found.append({"key": POOL, "operator": "Equal", "value": setting.podset.pool})
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
    return found + [{"key": f"node.kubernetes.io/{why}"} | lost for why in ("not-ready", "unreachable")]


def _where(setting: RenderContext) -> Object:
    """Gates until the placer names a server; a placement that nobody carries out bounds the choice of servers."""
    podset = setting.podset
    selector = dict(setting.pod.selector) | ({POOL: podset.pool} if podset.pool is not None else {})
    found: Object = {"nodeSelector": selector} if selector else {}
    if setting.route == "gates":
        found["schedulingGates"] = [{"name": PLACEMENT_GATE}]
    elif setting.route == "none" and podset.placement is not None:
        names = [server.name for server in podset.placement.servers]
        wanted = {"key": HOSTNAME, "operator": "In", "values": names}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        found["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return found


def _shm_bytes(setting: RenderContext) -> int:
    wanted = setting.podset.resources.shm_bytes
    return int(setting.pod.shm_bytes) if wanted is None else wanted


def _num_rdma(setting: RenderContext) -> int:
    """What the PodSet asks for, or one a GPU where the site names a resource for it."""
    wanted = setting.podset.resources
    if wanted.rdma and setting.pod.rdma is None:
        raise ConfigError(
            f"gang {setting.podset.name}: wanted {wanted.rdma} RDMA devices a pod, found no name for them;"
            " set pod.rdma in site.toml, e.g. rdma/hca"
        )
    return wanted.rdma or (wanted.gpus if setting.pod.rdma is not None else 0)


def _cpus(cores: float) -> str:
    whole, rest = divmod(math.ceil(round(cores * 1000, 3)), 1000)
    return str(whole) if not rest else f"{whole * 1000 + rest}m"
