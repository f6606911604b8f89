"""Release of a placed gang: from its unsuspended root until all pods run, and the replacement of lost pods.

Pods wait behind their gates until all exist; then all gates open at once. A gang that is not complete in time releases
all its servers. Once it was complete, it is not stopped here: a lost pod is replaced while the others run.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import HOSTNAME, WAITS
from gangline.launch.kubernetes.placement.cycle_context import CycleContext
from gangline.launch.kubernetes.placement.gang_pods import GangPods, is_bound, open_gates
from gangline.launch.kubernetes.placement.queued_gangs import PLACED, REFUSED, QueuedGang, Refusal
from gangline.launch.kubernetes.placement.reservations import Reservation
from gangline.launch.kubernetes.placement.server_selection import select_replacement
from gangline.launch.kubernetes.state.roots import placed_annotations
from gangline.spec.codec import canonical

BINDING_SECONDS = 60.0
"""Time limit for all pods of a gang to exist, and for all to be bound after their gates are opened."""
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 15.0, 300.0


def advance_release(context: CycleContext, gang: QueuedGang) -> None:
    """Do the next write of a gang that is not suspended, if one is due."""
    pods = context.pods(gang)
    reservation = context.ledger.reservations.get(gang.name) or _restore_reservation(context, gang, pods)
    if reservation is None and any(is_bound(pod) for pod in pods.living.values()):
        context.set_waiting_reason(gang, "some of its pods run, and no server has room for the others")
    elif reservation is None:
        context.write_root(
            gang, {WAITS: "it was resumed without reserved servers and is suspended again"}, suspend=True
        )
        context.add_event(gang, "suspended")
    elif missing := pods.missing(gang.request.num_pods):
        _await_pods(context, gang, pods, missing)
    elif pods.gated:
        _open_gates(context, gang, reservation, pods)
    else:
        reservation = context.put_reservation(gang, _as_they_are(reservation, pods))
        _annotate_root(context, gang, reservation)
        if pods.unbound:
            _await_binding(context, gang, reservation, pods)
        elif not reservation.whole:
            context.put_reservation(gang, replace(reservation, whole=True))
            context.add_event(gang, "whole", reservation.servers)


def _restore_reservation(context: CycleContext, gang: QueuedGang, pods: GangPods) -> Reservation | None:
    """Reservation from the annotations of its root, after a loss of the ledger; None: its pods have no room."""
    servers = gang.root.servers
    since = gang.root.annotations.get(PLACED)
    if since is None or len(servers) != gang.request.num_pods:
        return None
    bound = {rank for rank, pod in pods.living.items() if is_bound(pod)} | pods.succeeded
    unbound = [server for rank, server in enumerate(servers) if rank not in bound]
    capacities = {
        capacity.server.name: capacity.pods for capacity in context.pool_state.capacities(gang.request, context.ledger)
    }
    if any(capacities.get(server, 0) < unbound.count(server) for server in unbound):
        return None
    return context.reserve(gang, servers, since=since, whole=not unbound)


def _await_pods(context: CycleContext, gang: QueuedGang, pods: GangPods, missing: int) -> None:
    """Abort a gang whose pods were not created in time; after gates were opened, a missing pod is replaced instead."""
    if not pods.were_let_go and _has_timed_out(context, gang.root.annotations.get(PLACED)):
        there = gang.request.num_pods - missing
        _abort(context, gang, {}, f"only {there} of {gang.request.num_pods} pods were made in {BINDING_SECONDS:.0f} s")


def _await_binding(context: CycleContext, gang: QueuedGang, reservation: Reservation, pods: GangPods) -> None:
    late = {rank: pod for rank, pod in pods.unbound.items() if _has_timed_out(context, _annotation(pod, PLACED))}
    if not late:
        return
    servers = {reservation.servers[rank]: _scheduler_message(pod) for rank, pod in sorted(late.items())}
    why = "; ".join(f"server {server} does not take its pod: {said}" for server, said in list(servers.items())[:2])
    if reservation.whole or late.keys() <= pods.replacements:
        context.set_waiting_reason(gang, why)
    else:
        _abort(context, gang, servers, why)


def _abort(context: CycleContext, gang: QueuedGang, servers: Mapping[str, str], why: str) -> None:
    """Suspend the gang, which deletes its pods; its reservation is removed once they are gone."""
    times = (gang.refusal.times if gang.refusal else 0) + 1
    seconds = min(BACKOFF_SECONDS * 2 ** min(times - 1, 10), MOST_BACKOFF_SECONDS)
    refusal = Refusal(
        times=times,
        at=context.now.isoformat(),
        until=(context.now + timedelta(seconds=seconds)).isoformat(),
        servers=context.rejecting_servers(gang) | dict(servers),
    )
    sentence = f"{why}; its servers are released, next try in {seconds:.0f} s"
    context.write_root(gang, {REFUSED: canonical(refusal).decode(), WAITS: sentence}, suspend=True)
    context.add_event(gang, "refused", sentence=sentence)


def _open_gates(context: CycleContext, gang: QueuedGang, reservation: Reservation, pods: GangPods) -> None:
    gated = pods.gated
    if reservation.whole or pods.were_let_go:
        reservation, gated = _replace(context, gang, reservation, pods)
        _annotate_root(context, gang, reservation)
    by_name = {pod["metadata"]["name"]: pod for pod in gated.values()}
    servers = {pod["metadata"]["name"]: reservation.servers[rank] for rank, pod in gated.items()}
    if open_gates(context.api, servers, by_name, nodes=context.nodes, at=context.now.isoformat()):
        context.add_event(gang, "opened", reservation.servers)
    if len(gated) == len(pods.gated) and WAITS in gang.root.annotations:
        context.annotate(gang, {WAITS: None})


def _replace(
    context: CycleContext, gang: QueuedGang, reservation: Reservation, pods: GangPods
) -> tuple[Reservation, dict[int, Object]]:
    """Servers for replaced pods: the former ones if they have room; no other rank moves.

    A server that a pod leaves stays reserved until no gate is closed, as a slower placer may still bind the pod there.
    """
    found: dict[int, Object] = {}
    moved = reservation
    for rank, pod in sorted(pods.gated.items()):
        goes_to = _server_for(context, gang, moved, rank)
        if goes_to is None:
            context.set_waiting_reason(
                gang, f"the pod of node rank {rank} was lost, and no server has room for its replacement"
            )
            if (
                not reservation.whole
                and rank not in pods.replacements
                and _has_timed_out(context, gang.root.annotations.get(PLACED))
            ):
                _abort(context, gang, {}, f"no server has room for the pod of node rank {rank} any more")
                return reservation, {}
            continue
        found[rank] = pod
        moved = _moved(moved, rank, goes_to)
    if moved != reservation:
        context.put_reservation(gang, moved)
        context.add_event(gang, "replaced", moved.servers)
    return moved, found


def _server_for(context: CycleContext, gang: QueuedGang, reservation: Reservation, rank: int) -> str | None:
    """Server for the pod of `rank`, given those of all other ranks; None: none has room."""
    kept = (*reservation.servers[:rank], *reservation.servers[rank + 1 :])
    others = context.ledger.without([gang.name])
    if kept:
        others = others.with_reservation(gang.name, replace(reservation, servers=kept, leaving=()))
    capacities = context.pool_state.capacities(gang.request.part_of(rank), others)
    server = select_replacement(capacities, context.pool_state.where(reservation.servers[rank]))
    return server.name if server else None


def _moved(reservation: Reservation, rank: int, server: str) -> Reservation:
    old = reservation.servers[rank]
    if old == server:
        return reservation
    servers = (*reservation.servers[:rank], server, *reservation.servers[rank + 1 :])
    return replace(reservation, servers=servers, leaving=(*reservation.leaving, old))


def _as_they_are(reservation: Reservation, pods: GangPods) -> Reservation:
    """The reservation with the servers that the pods select, once all gates are open."""
    servers = list(reservation.servers)
    for rank, pod in pods.living.items():
        sent = (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME)
        if sent:
            servers[rank] = sent
    return replace(reservation, servers=tuple(servers), leaving=())


def _annotate_root(context: CycleContext, gang: QueuedGang, reservation: Reservation) -> None:
    if gang.root.servers != reservation.servers:
        context.annotate(gang, placed_annotations([context.pool_state.where(name) for name in reservation.servers]))


def _has_timed_out(context: CycleContext, since: str | None) -> bool:
    return since is None or context.age(since) > BINDING_SECONDS


def _annotation(pod: Object, name: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(name)
    return found


def _scheduler_message(pod: Object) -> str:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "the scheduler gives no reason")
    return "the scheduler gives no reason"
