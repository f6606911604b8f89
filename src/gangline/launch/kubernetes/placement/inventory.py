"""Inventory of a cluster for the planner: how many equal pods fit, with which devices, and how many fit this minute.

It counts what can become free, not what is free: pods of Jobs will end, all others stay. If this account may not list
nodes, the inventory comes from the quota of its namespace, else from the site file; `origin` says which.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import POOL
from gangline.launch.kubernetes.placement.resources import (
    Amounts,
    as_text,
    missing_resources,
    num_fitting,
    pod_needs,
    subtract,
    to_scheduler_units,
)
from gangline.launch.kubernetes.placement.servers import PODS, ServerFacts, read_servers, refusal
from gangline.launch.kubernetes.state.pods import is_over, owner_name
from gangline.spec.config.site import GpuTable, PodTable
from gangline.spec.devices import Devices, FreeServers, Inventory

_GPU_NAME = "nvidia.com/gpu.product"
_GPU_MEBIBYTES = "nvidia.com/gpu.memory"
_BF16_SINCE = 8
"""Major number of `nvidia.com/gpu.compute.major` from which a GPU has bf16."""


@dataclass(frozen=True, slots=True)
class _Found:
    """GPUs of one server that one pod may use, and how many such pods fit."""

    devices: Devices
    pods: int


def read_inventory(
    api: KubernetesApi, pod: PodTable, *, gpu: Mapping[str, GpuTable] | None = None, pool: str | None = None
) -> Inventory:
    """What gangs of pods like `pod` can use on the cluster.

    Args:
        api: Its account needs to list nodes; without a right on pods the servers count as empty.
        pod: The site's `[pod]`.
        gpu: The site's `[gpu]`, for facts that no label gives.
        pool: Only servers of this pool; None: only servers in no pool, as the placer reads it.

    Raises:
        ConfigError: The pool has no servers, or no server fits a pod; the message gives the reason of each.
    """
    try:
        servers = read_servers(api)
    except ApiForbidden as denied:
        return _from_quota(api, pod, gpu or {}, denied)
    return _inventory_of(servers_of_pool(servers, pool or ""), pod)


def servers_of_pool(servers: Sequence[ServerFacts], pool: str) -> list[ServerFacts]:
    """Servers of `pool`; empty: those in no pool."""
    facts = [server for server in servers if server.pool == pool]
    if servers and not facts:
        pools = ", ".join(sorted({server.pool for server in servers if server.pool})) or "none"
        wanted = f"servers with the label {POOL}={pool}" if pool else f"servers without the label {POOL}"
        works = f"launch.pool = {json.dumps(pools.partition(', ')[0])} works" if pools != "none" else "leave it out"
        raise ConfigError(f"launch.pool: wanted {wanted}, found none; pools of this cluster: {pools}; {works}")
    return facts


def _inventory_of(servers: Sequence[ServerFacts], pod: PodTable) -> Inventory:
    """GPU servers where any takes a pod, else the cores of all."""
    open_to_us = [server for server in servers if not refusal(server, pod.selector, tolerations_of(pod))]
    origin = "kubernetes" if all(server.are_pods_known for server in servers) else "kubernetes, nodes alone"
    kinds = _kinds(open_to_us, pod)
    if kinds:
        return _of_kinds(kinds, pod, origin)
    need = pod_need(pod, ranks=pod.procs or 1)
    fits = sum(num_fitting(_lasting(each), need) for each in open_to_us)
    if fits == 0:
        raise ConfigError(_nothing_fits(servers, pod, need))
    return _of_cores(fits, pod, origin)


def _of_kinds(kinds: Mapping[str, list[_Found]], pod: PodTable, origin: str) -> Inventory:
    """Servers of the kind with most GPUs, with those of every other kind that has a name to be selected by."""
    first, *others = sorted(kinds, key=lambda kind: _weight(kinds[kind]), reverse=True)
    inventory = _of_gpus(kinds[first], pod, origin)
    if not first or not others:
        return inventory
    return replace(
        inventory,
        labels={_GPU_NAME: first},
        others=tuple(
            replace(_of_gpus(kinds[other], pod, origin), labels={_GPU_NAME: other}) for other in others if other
        ),
    )


def tolerations_of(pod: PodTable) -> list[Object]:
    """Tolerations of the site's pods."""
    return [{"key": key, "operator": "Exists"} for key in pod.tolerate]


def pod_need(pod: PodTable, *, ranks: int, gpus: int = 0) -> dict[str, int]:
    """Requests of one pod with `ranks` ranks."""
    need = {
        "cpu": math.ceil(1000 * ranks * pod.cpus),
        "memory": math.ceil(ranks * pod.memory_bytes + pod.shm_bytes),
        "pods": 1,
    }
    devices = {pod.gpu: gpus} | ({pod.rdma: gpus} if pod.rdma else {})
    return need | {name: number for name, number in devices.items() if number}


def _lasting(server: ServerFacts) -> dict[str, int]:
    return subtract(server.allocatable, server.permanent)


def _kinds(servers: Iterable[ServerFacts], pod: PodTable) -> dict[str, list[_Found]]:
    """Servers that fit a pod with GPUs, by the name of the GPUs."""
    kinds: dict[str, list[_Found]] = {}
    for server in servers:
        lasting = _lasting(server)
        gpus = pod.procs or lasting.get(pod.gpu, 0)
        if gpus < 1 or not lasting.get(pod.gpu):
            continue
        if pods := num_fitting(lasting, pod_need(pod, ranks=gpus, gpus=gpus)):
            found = _Found(_devices(server.labels, gpus), pods)
            kinds.setdefault(found.devices.name, []).append(found)
    return kinds


def _devices(labels: Mapping[str, str], number: int) -> Devices:
    mebibytes, major = labels.get(_GPU_MEBIBYTES, ""), labels.get("nvidia.com/gpu.compute.major", "")
    return Devices(
        kind="cuda",
        name=labels.get(_GPU_NAME, ""),
        memory_bytes=int(mebibytes) * 2**20 if mebibytes.isdecimal() else None,
        count=number,
        has_bf16=int(major) >= _BF16_SINCE if major.isdecimal() else True,
    )


def _weight(kind: Sequence[_Found]) -> tuple[int, int, str]:
    """Sort key: number of GPUs, then their memory."""
    first = kind[0].devices
    return sum(each.pods * each.devices.count for each in kind), first.memory_bytes or 0, first.name


def _of_gpus(kind: Sequence[_Found], pod: PodTable, origin: str) -> Inventory:
    smallest = min(kind, key=lambda each: (each.devices.count, each.devices.memory_bytes or math.inf))
    number = smallest.devices.count
    return Inventory(
        num_nodes=sum(each.pods for each in kind),
        cores=max(1, math.floor(number * pod.cpus)),
        memory_bytes=int(number * pod.memory_bytes),
        devices=(smallest.devices,),
        origin=origin,
    )


def _of_cores(num_nodes: int, pod: PodTable, origin: str) -> Inventory:
    """A rank counts as one core, whatever `pod.cpus` is: the planner starts one rank per core."""
    ranks = pod.procs or 1
    return Inventory(num_nodes=num_nodes, cores=ranks, memory_bytes=int(ranks * pod.memory_bytes), origin=origin)


def _nothing_fits(servers: Sequence[ServerFacts], pod: PodTable, need: Amounts) -> str:
    wanted = ", ".join(as_text(name, amount) for name, amount in need.items() if name != "pods")
    if not servers:
        return f"pod: wanted a server for {wanted}, found no nodes at all; is launch.context the right one?"
    reasons = []
    for server in servers:
        short = missing_resources(_lasting(server), need)
        reasons.append(
            f"{server.name} {refusal(server, pod.selector, tolerations_of(pod)) or 'lacks ' + ' and '.join(short)}"
        )
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return (
        f"pod: wanted a server for {wanted}, found none: {'; '.join(reasons[:5])}{more}; smaller pod.cpus, "
        "pod.memory_bytes or pod.shm_bytes works, or another pod.selector or pod.tolerate"
    )


def _from_quota(api: KubernetesApi, pod: PodTable, gpu: Mapping[str, GpuTable], denied: ApiForbidden) -> Inventory:
    """Inventory from the tightest quota of the namespace, used or not; without one, from `[gpu]` of the site."""
    quotas = api.items(f"/api/v1/namespaces/{api.namespace}/resourcequotas")[0]
    hard = _tightest((quota.get("spec") or {}).get("hard") or {} for quota in quotas)
    kind, table = next(iter(gpu.items()), ("", None))
    if pod.gpu in hard or (not hard and table):
        ranks = pod.procs or 1
        devices = Devices(kind="cuda", name=kind, memory_bytes=int(table.memory_bytes) if table else None, count=ranks)
        fits = num_fitting(hard, _limited(pod_need(pod, ranks=ranks, gpus=ranks), hard)) if hard else 1
        if fits:
            return _of_gpus([_Found(devices, fits)], pod, "quota" if hard else "site.toml")
    fits = num_fitting(hard, _limited(pod_need(pod, ranks=pod.procs or 1), hard)) if hard else 0
    if not fits:
        raise ConfigError(
            f"wanted the resources of the cluster, found neither a right to list nodes nor a quota with room in "
            f"namespace {api.namespace} ({denied}); bind gangline-reader, or state [gpu] in site.toml"
        ) from denied
    return _of_cores(fits, pod, "quota")


def _tightest(quotas: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Amounts that all quotas allow, by resource."""
    least: dict[str, int] = {}
    for hard in quotas:
        for key, text in hard.items():
            name = key.removeprefix("requests.").removeprefix("limits.")
            if name in ("cpu", "memory", "pods") or "/" in name:
                least[name] = min(least.get(name, to_scheduler_units(name, text)), to_scheduler_units(name, text))
    return least


def _limited(need: Amounts, hard: Amounts) -> dict[str, int]:
    return {name: amount for name, amount in need.items() if name in hard}


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
        server
        for server in servers_of_pool(read_servers(api), pool or "")
        if not refusal(server, {**pod.selector, **inventory.labels}, tolerations_of(pod))
    ]
    free = sum(num_fitting(server.free, need) for server in servers)
    names = {server.node for server in servers if not num_fitting(server.free, need)}
    return FreeServers(free=min(free, inventory.num_nodes), holders=_holders(api, names, pod.gpu if gpus else "cpu"))


def _holders(api: KubernetesApi, servers: Iterable[str], resource: str) -> tuple[str, ...]:
    """Owners of pods on `servers`, those that hold most of `resource` first."""
    wanted, held = set(servers), Counter[str]()
    for pod in api.items(PODS, fields="status.phase!=Succeeded,status.phase!=Failed")[0]:
        spec = pod.get("spec") or {}
        if spec.get("nodeName") in wanted and not is_over(pod):
            held[owner_name(pod)] += pod_needs(spec).get(resource, 0)
    return tuple(name for name, amount in held.most_common(_SHOWN) if amount)
