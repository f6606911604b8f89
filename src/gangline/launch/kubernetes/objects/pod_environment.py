"""Environment variables of a pod's keeper, the same in every pod of a gang but for the node rank; rights of any pod."""

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import DEADLINE, INDEX
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.spec.gang.driver_orders import coordinator_of
from gangline.spec.gang.podset import PodSet

RENDEZVOUS_PORT, CONTROL_PORT, READY_PORT = 29_500, 29_501, 29_502
SECRETS_FOLDER = "/var/run/gangline/secrets"
HOME = "/gangline"
USER = "gangline"
"""The uid has no name in foreign images, and torch before 2.12 looks one up on import."""
CHECKPOINT_KEY, STORE_CREDENTIALS = "checkpoint-key", "store-credentials"
MAILBOX_FOLDER = "/var/run/gangline/federation"
"""Folder that the rank and the coordinator of a federation share, and no other one."""


def pod_environment(context: RenderContext, *, master: str) -> list[Object]:
    """`env` of the container: node ranks from an annotation, all other variables as literals.

    Args:
        context: Of the gang.
        master: Host name of the pod of node 0.
    """
    podset = context.podset
    plain = {"LOGNAME": USER} | _network(context) | podset.variables | _gang(context) | _rendezvous(podset, master)
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    referred = [{"name": name, "valueFrom": rank} for name in ("NODE_RANK", "PET_NODE_RANK")]
    mine = {each["name"] for each in referred}
    return referred + [{"name": name, "value": literal(plain[name])} for name in sorted(plain) if name not in mine]


def confinement() -> Object:
    """`securityContext` of every container that gangline renders."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def unprivileged(user: int) -> Object:
    """`securityContext` of every pod that gangline renders: `user`, also as group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def literal(text: str) -> str:
    """`text` escaped so that Kubernetes expands no `$(NAME)` in it."""
    return text.replace("$", "$$")


def _network(context: RenderContext) -> dict[str, str]:
    """Defaults that the line may override."""
    interface = context.pod.interface
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface, "NCCL_DEBUG": "WARN"}


def _gang(context: RenderContext) -> dict[str, str]:
    podset = context.podset
    own = {
        "GANGLINE_RUN": podset.run,
        "GANGLINE_GANG": podset.name,
        "GANGLINE_HOME": f"{HOME}/gang",
        "GANGLINE_PLAN": podset.plan,
        "GANGLINE_CODE": podset.code,
        "GANGLINE_STORE": podset.store,
        "GANGLINE_KEY_FILE": f"{SECRETS_FOLDER}/{CHECKPOINT_KEY}",
        "GANGLINE_GRACE_SECONDS": str(context.grace_seconds),
        "GANGLINE_CONTROL_PORT": str(CONTROL_PORT),
        "GANGLINE_READY_PORT": str(READY_PORT),
        "GANGLINE_TERMINATION_LOG": "/dev/termination-log",
        "HOME": HOME,
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if STORE_CREDENTIALS in podset.secrets:
        own["GANGLINE_STORE_CREDENTIALS_FILE"] = f"{SECRETS_FOLDER}/{STORE_CREDENTIALS}"
    if coordinator_of(podset.env) is not None:
        own["GANGLINE_MAILBOX"] = MAILBOX_FOLDER
    if podset.metrics_port_base is not None:
        own["GANGLINE_METRICS_PORT"] = str(podset.metrics_port_base)
    if podset.deadline_seconds is not None:
        own[DEADLINE] = str(podset.deadline_seconds)
    return own


def _rendezvous(podset: PodSet, master: str) -> dict[str, str]:
    return {
        "WORLD_SIZE": str(podset.world_size),
        "LOCAL_WORLD_SIZE": str(podset.procs_per_node),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(RENDEZVOUS_PORT),
        "PET_NNODES": str(podset.num_nodes),
        "PET_NPROC_PER_NODE": str(podset.procs_per_node),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": str(RENDEZVOUS_PORT),
    }
