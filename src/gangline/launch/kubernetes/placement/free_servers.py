"""Servers on which a gang could start this minute, and who holds the others: for `gangline plan --now`."""

from collections import Counter
from collections.abc import Iterable

from gangline.launch.kubernetes.client.api import KubernetesApi
from gangline.launch.kubernetes.placement.inventory import pod_need, servers_of_pool, tolerations_of
from gangline.launch.kubernetes.placement.resources import num_fitting, pod_needs
from gangline.launch.kubernetes.placement.servers import PODS, read_servers, refusal
from gangline.launch.kubernetes.state.pods import is_over, owner_name
from gangline.spec.config.site import PodTable
from gangline.spec.devices import FreeServers, Inventory

_SHOWN = 3


def read_free_servers(
    api: KubernetesApi, pod: PodTable, inventory: Inventory, *, pool: str | None = None
) -> FreeServers:
    """How many pods of gangs on `inventory` fit into what no pod has asked for.

    Args:
        api: Its account lists nodes and pods.
        pod: The site's `[pod]`.
        inventory: As `read_inventory` gave it.
        pool: Only servers of this pool; None: only servers in no pool.

    Raises:
        ApiForbidden: This account may not list nodes.
    """
    gpus = inventory.gpus.count if inventory.gpus else 0
    need = pod_need(pod, ranks=gpus or pod.procs or 1, gpus=gpus)
    servers = [
        each
        for each in servers_of_pool(read_servers(api), pool or "")
        if not refusal(each, {**pod.selector, **inventory.labels}, tolerations_of(pod))
    ]
    free = sum(num_fitting(each.free, need) for each in servers)
    names = {each.node for each in servers if not num_fitting(each.free, need)}
    return FreeServers(free=min(free, inventory.num_nodes), holders=_holders(api, names, pod.gpu if gpus else "cpu"))


def _holders(api: KubernetesApi, servers: Iterable[str], resource: str) -> tuple[str, ...]:
    """Owners of pods on `servers`, those that hold most of `resource` first."""
    wanted, held = set(servers), Counter[str]()
    for pod in api.items(PODS, fields="status.phase!=Succeeded,status.phase!=Failed")[0]:
        spec = pod.get("spec") or {}
        if spec.get("nodeName") in wanted and not is_over(pod):
            held[owner_name(pod)] += pod_needs(spec).get(resource, 0)
    return tuple(name for name, amount in held.most_common(_SHOWN) if amount)
