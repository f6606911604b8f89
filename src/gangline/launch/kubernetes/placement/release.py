"""Release of a placed gang: from its unsuspended root until all pods run, and the replacement of lost pods.

Pods wait behind their gates until all exist; then all gates open at once. A gang that is not complete in time gives
back every server. Once it was complete, nothing here stops it: a lost pod is replaced, the others run on.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import HOSTNAME, SERVERS, WAITS
from gangline.launch.kubernetes.placement.cycle_context import CycleContext
from gangline.launch.kubernetes.placement.gang_pods import GangPods, is_bound, open_gates
from gangline.launch.kubernetes.placement.ledger import Reservation
from gangline.launch.kubernetes.placement.queued_gangs import PLACED, REFUSED, QueuedGang, Refusal
from gangline.launch.kubernetes.placement.server_selection import select_replacement
from gangline.spec.codec import canonical

BINDING_SECONDS = 60.0
"""For all pods of a gang to exist, and for all to be bound once their gates are open."""
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 15.0, 300.0


def advance_release(turn: CycleContext, gang: QueuedGang) -> None:
    """The next write of a gang that is not suspended, where one is due."""
    pods = turn.pods(gang)
    promise = turn.ledger.promises.get(gang.name) or _adopt(turn, gang, pods)
    if promise is None and any(is_bound(pod) for pod in pods.living.values()):
        turn.say(gang, "some of its pods run, and no server has room for the others")
    elif promise is None:
        turn.write_root(gang, {WAITS: "it was started without servers, and waits for them again"}, suspend=True)
        turn.tell(gang, "suspended")
    elif missing := pods.missing(gang.wanted.num_pods):
        _await_pods(turn, gang, pods, missing)
    elif pods.gated:
        _open(turn, gang, promise, pods)
    else:
        promise = turn.rewrite(gang, _as_they_are(promise, pods))
        _tell_root(turn, gang, promise)
        if pods.unbound:
            _await_binding(turn, gang, promise, pods)
        elif not promise.whole:
            turn.rewrite(gang, replace(promise, whole=True))
            turn.tell(gang, "whole", promise.servers)


def _adopt(turn: CycleContext, gang: QueuedGang, pods: GangPods) -> Reservation | None:
    """The promise that its root tells of, where its pods are bound or still find room: the ledger was lost."""
    servers = gang.root.servers
    since = gang.root.annotations.get(PLACED)
    if since is None or len(servers) != gang.wanted.num_pods:
        return None
    bound = {rank for rank, pod in pods.living.items() if is_bound(pod)} | pods.succeeded
    unbound = [server for rank, server in enumerate(servers) if rank not in bound]
    rooms = {room.server.name: room.pods for room in turn.fleet.rooms(gang.wanted, turn.ledger)}
    if any(rooms.get(server, 0) < unbound.count(server) for server in unbound):
        return None
    return turn.promise(gang, servers, since=since, whole=not unbound)


def _await_pods(turn: CycleContext, gang: QueuedGang, pods: GangPods, missing: int) -> None:
    """Once gates were open all had been there: a pod that is missing then was lost, and is made again."""
    if not pods.were_let_go and _is_late(turn, gang.root.annotations.get(PLACED)):
        there = gang.wanted.num_pods - missing
        _give_up(turn, gang, {}, f"only {there} of {gang.wanted.num_pods} pods were made in {BINDING_SECONDS:.0f} s")


def _await_binding(turn: CycleContext, gang: QueuedGang, promise: Reservation, pods: GangPods) -> None:
    late = {rank: pod for rank, pod in pods.unbound.items() if _is_late(turn, _annotation(pod, PLACED))}
    if not late:
        return
    servers = {promise.servers[rank]: _refusal_of(pod) for rank, pod in sorted(late.items())}
    why = "; ".join(f"server {server} does not take its pod: {said}" for server, said in list(servers.items())[:2])
    if promise.whole or late.keys() <= pods.replacements:
        turn.say(gang, why)
    else:
        _give_up(turn, gang, servers, why)


def _give_up(turn: CycleContext, gang: QueuedGang, servers: Mapping[str, str], why: str) -> None:
    """Its pods vanish with the suspending; the promise is dropped once they have."""
    times = (gang.refusal.times if gang.refusal else 0) + 1
    seconds = min(BACKOFF_SECONDS * 2 ** min(times - 1, 10), MOST_BACKOFF_SECONDS)
    refusal = Refusal(
        times=times,
        at=turn.now.isoformat(),
        until=(turn.now + timedelta(seconds=seconds)).isoformat(),
        servers=turn.refused(gang) | dict(servers),
    )
    sentence = f"{why}; all its servers are free again, next try in {seconds:.0f} s"
    turn.write_root(gang, {REFUSED: canonical(refusal).decode(), WAITS: sentence}, suspend=True)
    turn.tell(gang, "refused", sentence=sentence)


def _open(turn: CycleContext, gang: QueuedGang, promise: Reservation, pods: GangPods) -> None:
    gated = pods.gated
    if promise.whole or pods.were_let_go:
        promise, gated = _replace(turn, gang, promise, pods)
        _tell_root(turn, gang, promise)
    by_name = {pod["metadata"]["name"]: pod for pod in gated.values()}
    servers = {pod["metadata"]["name"]: promise.servers[rank] for rank, pod in gated.items()}
    if open_gates(turn.api, servers, by_name, nodes=turn.nodes, at=turn.now.isoformat()):
        turn.tell(gang, "opened", promise.servers)
    if len(gated) == len(pods.gated) and WAITS in gang.root.annotations:
        turn.note(gang, {WAITS: None})


def _replace(
    turn: CycleContext, gang: QueuedGang, promise: Reservation, pods: GangPods
) -> tuple[Reservation, dict[int, Object]]:
    """Servers for the pods that came back: the old ones where they can, and no other rank moves.

    A server that is left stays promised until no gate is closed: a slower placer may send the pod there yet.
    """
    found: dict[int, Object] = {}
    moved = promise
    for rank, pod in sorted(pods.gated.items()):
        goes_to = _server_for(turn, gang, moved, rank)
        if goes_to is None:
            turn.say(gang, f"the pod of node rank {rank} was lost, and no server has room for its replacement")
            if (
                not promise.whole
                and rank not in pods.replacements
                and _is_late(turn, gang.root.annotations.get(PLACED))
            ):
                _give_up(turn, gang, {}, f"no server has room for the pod of node rank {rank} any more")
                return promise, {}
            continue
        found[rank] = pod
        moved = _moved(moved, rank, goes_to)
    if moved != promise:
        turn.rewrite(gang, moved)
        turn.tell(gang, "replaced", moved.servers)
    return moved, found


def _server_for(turn: CycleContext, gang: QueuedGang, promise: Reservation, rank: int) -> str | None:
    """Beside the servers of all other ranks, those included that come back, too."""
    kept = (*promise.servers[:rank], *promise.servers[rank + 1 :])
    others = turn.ledger.without([gang.name])
    if kept:
        others = others.with_promise(gang.name, replace(promise, servers=kept, leaving=()))
    rooms = turn.fleet.rooms(gang.wanted, others)
    found = select_replacement(rooms, turn.fleet.where(promise.servers[rank]))
    return found.name if found else None


def _moved(promise: Reservation, rank: int, server: str) -> Reservation:
    old = promise.servers[rank]
    if old == server:
        return promise
    servers = (*promise.servers[:rank], server, *promise.servers[rank + 1 :])
    return replace(promise, servers=servers, leaving=(*promise.leaving, old))


def _as_they_are(promise: Reservation, pods: GangPods) -> Reservation:
    """With all gates open, each pod is where it was sent to, by whichever placer was first."""
    servers = list(promise.servers)
    for rank, pod in pods.living.items():
        sent = (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME)
        if sent:
            servers[rank] = sent
    return replace(promise, servers=tuple(servers), leaving=())


def _tell_root(turn: CycleContext, gang: QueuedGang, promise: Reservation) -> None:
    servers = ",".join(promise.servers)
    if gang.root.annotations.get(SERVERS) != servers:
        turn.note(gang, {SERVERS: servers})


def _is_late(turn: CycleContext, since: str | None) -> bool:
    return since is None or turn.age(since) > BINDING_SECONDS


def _annotation(pod: Object, name: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(name)
    return found


def _refusal_of(pod: Object) -> str:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "the scheduler does not say why")
    return "the scheduler does not say why"
