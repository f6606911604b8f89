"""The placer: a gang scheduler for clusters that have none. It assigns servers to queued gangs, whole gangs only.

A gang's root is created suspended and marked as queued. `Placer.step` reserves servers for it in the ledger, unsuspends
it, waits until all its pods exist behind their scheduling gates, then opens all gates. A step that dies leaves a state
that the next step of any placer completes; `scheduling_cycle` has the rules. A Lease lets one placer work while others
stand by; it only saves requests, the ledger makes placers safe.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from gangline.errors import CapacityError, IntegrityError
from gangline.fabric.topology.inventory import Fabric
from gangline.launch.kubernetes.client.api import (
    ApiConflict,
    ApiExpired,
    ApiRejected,
    ApiUnavailable,
    KubernetesApi,
    Object,
)
from gangline.launch.kubernetes.cluster.facts import PLACER_LEASE
from gangline.launch.kubernetes.placement.cycle_context import CycleContext, PlacementEvent, write_waiting_reason
from gangline.launch.kubernetes.placement.queued_gangs import QueuedGangs, UnreadableGang
from gangline.launch.kubernetes.placement.reservations import read_ledger
from gangline.launch.kubernetes.placement.scheduling_cycle import run_scheduling_cycle
from gangline.launch.kubernetes.placement.server_selection import ServerSelector, select_servers

BUSY_SECONDS, IDLE_SECONDS, TROUBLE_SECONDS = 0.2, 1.0, 5.0
"""Pause after a step that changed something, that changed nothing, that failed."""

log = structlog.get_logger()


class Placer:
    """Several placers may step at once: each sees the reservations of the others, or its write is refused.

    This includes placers of other namespaces that share a ledger; `ledger` is its namespace, by default the placer's.
    `fabric` groups the servers of a cluster whose nodes have no labels of the network.
    """

    def __init__(
        self,
        api: KubernetesApi,
        *,
        holder: str,
        ledger: str | None = None,
        fabric: Fabric | None = None,
        choose: ServerSelector = select_servers,
    ) -> None:
        self._api = api
        self._holder = holder
        self._ledger = ledger
        self._fabric = fabric
        self._choose = choose
        self._gangs = QueuedGangs(api)
        self._reserved_pools: set[str] = set()

    def step(self, now: datetime) -> list[PlacementEvent]:
        """One pass over all queued gangs of the namespace; it does not wait.

        Raises:
            ApiUnavailable: The API server did not answer some request; step again.
            ApiForbidden: This account lacks a right; the message names it.
            IntegrityError: A ledger is damaged; the message says what to do. Other pools were processed.
        """
        gangs, unreadable = self._gangs.read()
        events = [event for gang in unreadable if (event := self._report_unreadable(gang))]
        damaged: IntegrityError | None = None
        for pool in sorted({gang.request.pool for gang in gangs} | self._reserved_pools):
            try:
                events += self._run_pool(pool, now)
            except ApiConflict as error:
                log.debug("placer_second", pool=pool, why=str(error))
            except IntegrityError as error:
                damaged = error
        if damaged is not None:
            raise damaged
        return events

    def _run_pool(self, pool: str, now: datetime) -> list[PlacementEvent]:
        ledger = read_ledger(self._api, pool, namespace=self._ledger)  # before the roots: see `ledger`
        gangs = [gang for gang in self._gangs.read()[0] if gang.request.pool == pool]
        context = CycleContext(self._api, ledger, holder=self._holder, now=now, fabric=self._fabric)
        run_scheduling_cycle(context, gangs, self._choose)
        if context.ledger.reservations:
            self._reserved_pools.add(
                pool
            )  # looked at again when its last gang has ended: others may wait for the servers
        else:
            self._reserved_pools.discard(pool)
        return context.events

    def _report_unreadable(self, bad: UnreadableGang) -> PlacementEvent | None:
        name = str(bad.root.object["metadata"]["name"])
        return (
            PlacementEvent(gang=name, kind="waits", sentence=bad.why)
            if write_waiting_reason(self._api, bad.root, bad.why)
            else None
        )


def run_placer(
    api: KubernetesApi,
    *,
    holder: str,
    stop: threading.Event,
    ledger: str | None = None,
    fabric: Fabric | None = None,
    passed: Callable[[], object] = lambda: None,
) -> None:
    """Place gangs until `stop` is set, while holding the Lease. `passed` is called after each pass.

    Raises:
        ApiForbidden: This account lacks a right.
    """
    placer, seconds = Placer(api, holder=holder, ledger=ledger, fabric=fabric), IDLE_SECONDS
    while not stop.wait(seconds):
        now = datetime.now(UTC)
        try:
            events = placer.step(now) if hold_lease(api, holder=holder, now=now) else []
            for event in events:
                log.info(f"gang_{event.kind}", gang=event.gang, servers=",".join(event.servers), why=event.sentence)
            seconds = (
                BUSY_SECONDS if any(placement_event.kind != "waits" for placement_event in events) else IDLE_SECONDS
            )
        except (ApiUnavailable, ApiExpired, ApiRejected, CapacityError, IntegrityError) as error:
            log.warning("placer_trouble", why=str(error))
            seconds = TROUBLE_SECONDS
        passed()


_DURATION_SECONDS = 15


def lease_path(namespace: str) -> str:
    """Path of the Leases of `namespace`."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def hold_lease(api: KubernetesApi, *, holder: str, now: datetime) -> bool:
    """Take or renew the Lease; False: another placer holds it."""
    path = lease_path(api.namespace)
    found = api.get(f"{path}/{PLACER_LEASE}")
    try:
        if found is None:
            api.create(path, _lease(api.namespace, _spec(holder, now, now, 0)))
            return True
        spec = found.get("spec") or {}
        if spec.get("holderIdentity") == holder:
            return _renew(api, found, holder, now)
        if _is_fresh(spec, now):
            return False
        spec = _spec(holder, now, now, int(spec.get("leaseTransitions") or 0) + 1)
        return api.replace(f"{path}/{PLACER_LEASE}", {**found, "spec": spec}) is not None
    except ApiConflict:
        return False


def _renew(api: KubernetesApi, found: Object, holder: str, now: datetime) -> bool:
    spec = found["spec"]
    renewed = _time(spec.get("renewTime"))
    if renewed is not None and abs(now - renewed) < timedelta(seconds=_DURATION_SECONDS / 3):
        return True
    since = _time(spec.get("acquireTime")) or now
    body = {**found, "spec": _spec(holder, now, since, int(spec.get("leaseTransitions") or 0))}
    return api.replace(f"{lease_path(api.namespace)}/{PLACER_LEASE}", body) is not None


def _is_fresh(spec: Object, now: datetime) -> bool:
    renewed = _time(spec.get("renewTime"))
    seconds = int(spec.get("leaseDurationSeconds") or _DURATION_SECONDS)
    return renewed is not None and abs(now - renewed) < timedelta(seconds=seconds)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _spec(holder: str, now: datetime, since: datetime, transitions: int) -> Object:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": _DURATION_SECONDS,
        "acquireTime": _micro(since),
        "renewTime": _micro(now),
        "leaseTransitions": transitions,
    }


def _micro(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lease(namespace: str, spec: Object) -> Object:
    labels = {"app.kubernetes.io/managed-by": "gangline"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": PLACER_LEASE, "namespace": namespace, "labels": labels},
        "spec": spec,
    }
